"""Magnetic resonance imaging: an image from a third of its frequencies.

A scanner measures the Fourier transform of the slice ("k-space"), one point after the other. Half
the points take half the time, so one measures few and finds the image that agrees with them and is
smooth but for edges: Lustig, Donoho and Pauly, "Sparse MRI", Magnetic Resonance in Medicine 58, 2007.

Serve it with ``gradwire serve examples/mri.py``; ``mri_client.py`` solves it.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Complex, Float

from gradwire_service import Map

EDGE = 1e-3
"""Differences between neighbours far below this count as smooth, far above it as an edge."""


@Map
def forward(image: Float[Array, "h w"], mask: Bool[Array, "h w"]) -> Complex[Array, "h w"]:
    """What the scanner measures: the image's orthonormal 2-D Fourier transform where `mask` is set."""
    return jnp.where(mask, jnp.fft.fft2(image, norm="ortho"), 0)


def total_variation(image: Float[Array, "h w"]) -> Float[Array, ""]:
    """Sum of the gradient's length, rounded off at 0 so that it has a derivative there; periodic."""
    down = jnp.roll(image, -1, axis=0) - image
    right = jnp.roll(image, -1, axis=1) - image
    return jnp.sum(jnp.sqrt(down**2 + right**2 + EDGE**2) - EDGE)


@Map
def loss(
    image: Float[Array, "h w"],
    mask: Bool[Array, "h w"],
    kspace: Complex[Array, "h w"],
    weight: Float[Array, ""],
) -> Float[Array, ""]:
    """½‖forward(image, mask) − kspace‖² + weight · total_variation(image)."""
    misfit = forward(image, mask) - kspace
    return 0.5 * jnp.sum(jnp.abs(misfit) ** 2) + weight * total_variation(image)
