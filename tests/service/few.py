"""A few of the maps, for services that start quickly."""

from hosted import cubic, energy, in_half, on_the_last, slow, wave

__all__ = ["cubic", "energy", "in_half", "on_the_last", "slow", "wave"]
