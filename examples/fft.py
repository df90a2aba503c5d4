"""The Fourier transform as a map: a callable instance with settings of its own.

Served, ``lab["fft"](x)`` is the value and ``lab["fft"].jacobian(x)`` the Jacobian: for real x the
DFT matrix itself, complex and of shape (n, n).
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Complex, Inexact

from gradwire_service import Map


class FFT:
    """The discrete Fourier transform of a vector.

    Args:
        norm: as in ``numpy.fft``: "backward" (no factor), "ortho" (1/√n, unitary) or "forward" (1/n).
    """

    def __init__(self, norm: str = "backward") -> None:
        self.norm = norm

    def __call__(self, x: Inexact[Array, "n"]) -> Complex[Array, "n"]:
        """Values y[k] = factor · Σⱼ x[j] exp(−2πi jk/n)."""
        return jnp.fft.fft(x, norm=self.norm)


fft = Map(FFT(), name="fft")
