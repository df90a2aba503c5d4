"""Reconstructs an MRI slice from a third of its k-space; the mathematics runs on the service.

Serve the maps with ``gradwire serve examples/mri.py``, then run
``python examples/mri_client.py [URL]`` where NumPy, SciPy and Matplotlib are: no JAX here. The last
line printed is one line of JSON; the exit status is 0 only if its figures hold.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import time
from pathlib import Path

import numpy as np
from matplotlib import cbook
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult, minimize

import gradwire

WEIGHT = 5e-4
"""Weight of the total variation: as small as the noiseless measurement allows."""
ITERATIONS = 200

Image = NDArray[np.float64]
Mask = NDArray[np.bool_]
KSpace = NDArray[np.complex128]


def read_slice() -> Image:
    """The slice that ships with Matplotlib, shape (256, 256), scaled to [0, 1]."""
    with cbook.get_sample_data("s1045.ima.gz") as file:
        image: Image = np.frombuffer(file.read(), dtype=">u2").reshape(256, 256).astype(np.float64)
    return image / float(image.max())


def sampling_mask(shape: tuple[int, int], fraction: float, centre: int = 24, seed: int = 0) -> Mask:
    """Which k-space points to measure: the central square whole, the rest at random, denser inside.

    Args:
        shape: of the image; the mask has the frequencies' order of ``numpy.fft``.
        fraction: of all points that are measured.
        centre: side of the square of lowest frequencies that is always measured.
        seed: of the random choice.
    """
    rows, columns = (np.fft.fftfreq(size) * size for size in shape)
    radius = np.hypot(rows[:, None] / (shape[0] / 2), columns / (shape[1] / 2)) / np.sqrt(2)
    mask: Mask = (np.abs(rows)[:, None] < centre / 2) & (np.abs(columns) < centre / 2)
    density = np.where(mask, 0.0, (1 - radius) ** 2).ravel()
    extra = round(fraction * mask.size) - np.count_nonzero(mask)
    chosen = np.random.default_rng(seed).choice(mask.size, extra, replace=False, p=density / density.sum())
    mask.flat[chosen] = True
    return mask


def psnr(image: Image, truth: Image) -> float:
    """Peak signal-to-noise ratio in dB, for a peak of 1."""
    return float(-10 * np.log10(np.mean((image - truth) ** 2)))


class Bar:
    """A progress bar on stderr: redrawn in place on a terminal, a line every two seconds elsewhere."""

    def __init__(self, total: int) -> None:
        self.total, self.done, self.drawn = total, 0, time.monotonic()
        self.terminal = sys.stderr.isatty()

    def step(self, note: str) -> None:
        self.done += 1
        if self.terminal or time.monotonic() - self.drawn > 2:
            self.draw(note)

    def draw(self, note: str) -> None:
        self.drawn = time.monotonic()
        filled = 30 * self.done // self.total
        line = f"  [{'#' * filled}{'.' * (30 - filled)}] {self.done}/{self.total} {note}"
        sys.stderr.write(f"\r{line}\033[K" if self.terminal else f"{line}\n")
        sys.stderr.flush()

    def close(self, note: str) -> None:
        self.total = self.done
        self.draw(note)
        if self.terminal:
            print(file=sys.stderr)


def reconstruct(loss: gradwire.Operator, start: Image, mask: Mask, kspace: KSpace) -> tuple[Image, int]:
    """Minimises the remote loss from ``start``; gives the image and the number of iterations."""
    bar = Bar(ITERATIONS)

    def value_and_grad(flat: Image) -> tuple[float, Image]:
        value, gradient = loss.value_and_grad(flat.reshape(start.shape), mask, kspace, WEIGHT)
        return float(value), gradient.ravel()

    def after_iteration(intermediate_result: OptimizeResult) -> None:
        bar.step(f"loss {intermediate_result.fun:.6f}")

    found = minimize(
        value_and_grad,
        start.ravel(),
        jac=True,
        method="L-BFGS-B",
        callback=after_iteration,
        options={"maxiter": ITERATIONS},
    )
    bar.close(f"loss {found.fun:.6f}")
    return found.x.reshape(start.shape), int(found.nit)


def gradient_error(loss: gradwire.Operator, image: Image, *others: object) -> float:
    """Relative error of the remote gradient along a random direction, against central differences."""
    direction = np.random.default_rng(1).standard_normal(image.shape)
    direction /= np.linalg.norm(direction)
    exact = float(np.vdot(loss.grad(image, *others), direction))
    step = 1e-4
    ahead, behind = (float(loss(image + sign * step * direction, *others)) for sign in (1, -1))
    return abs((ahead - behind) / (2 * step) - exact) / abs(exact)


def draw(path: Path, pictures: dict[str, Image]) -> None:
    """Writes the images side by side, each under its title."""
    figure = Figure(figsize=(4 * len(pictures), 4.4), layout="constrained")
    for axes, (title, image) in zip(figure.subplots(1, len(pictures)), pictures.items(), strict=True):
        axes.imshow(image, cmap="gray", vmin=0, vmax=1)
        axes.set_title(title)
        axes.axis("off")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main() -> int:
    parser = argparse.ArgumentParser(description="Reconstruct an MRI slice through a Gradwire service.")
    parser.add_argument("url", nargs="?", default="http://127.0.0.1:8000")
    parser.add_argument("--out", type=Path, default=Path("out/mri.png"), help="the picture to write")
    parser.add_argument("--without-jax", action="store_true", help="fail if JAX can be imported here")
    options = parser.parse_args()
    jax_here = importlib.util.find_spec("jax") is not None
    if jax_here and options.without_jax:
        parser.error(f"JAX can be imported by {sys.executable}, and --without-jax says that it cannot")
    began = time.monotonic()

    truth = read_slice()
    mask = sampling_mask(truth.shape, fraction=1 / 3)
    print(f"An MRI slice of {truth.shape[0]}×{truth.shape[1]}, {mask.mean():.1%} of its k-space measured.")
    with gradwire.connect(options.url) as lab:
        forward, loss = lab["forward"], lab["loss"]
        kspace = forward(truth, mask)
        zero_filled = np.fft.ifft2(kspace, norm="ortho").real
        error = gradient_error(loss, zero_filled, mask, kspace, WEIGHT)
        print(f"Remote gradient against finite differences: relative error {error:.1e}.")
        print("L-BFGS on the remote value and gradient:", flush=True)
        image, iterations = reconstruct(loss, zero_filled, mask, kspace)

    before, after = psnr(zero_filled, truth), psnr(image, truth)
    print(f"PSNR: {before:.2f} dB zero-filled, {after:.2f} dB reconstructed after {iterations} iterations.")
    draw(
        options.out,
        {
            "Original": truth,
            f"Zero-filled, {before:.1f} dB": zero_filled,
            f"Reconstructed, {after:.1f} dB": image,
        },
    )
    figures = {
        "psnr_zero_filled": round(before, 2),
        "psnr_reconstructed": round(after, 2),
        "gain_db": round(after - before, 2),
        "gradient_error": float(f"{error:.2g}"),
        "iterations": iterations,
        "seconds": round(time.monotonic() - began, 2),
        "jax_in_client": jax_here,
        "picture": str(options.out),
    }
    print(json.dumps(figures))
    holds = after - before >= 12 and error < 1e-6 and "jax" not in sys.modules
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
