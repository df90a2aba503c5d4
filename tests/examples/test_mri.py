"""The demo's mathematics, against NumPy: the maps in process, the sampling, the figures."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"examples_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def client() -> ModuleType:
    return load("mri_client")


@pytest.fixture(scope="module")
def maps() -> ModuleType:
    return load("mri")


@pytest.fixture
def problem() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(2)
    image = rng.standard_normal((6, 8))
    mask = rng.random((6, 8)) < 0.5
    return image, mask, rng.standard_normal((6, 8)) + 1j * rng.standard_normal((6, 8))


def numpy_loss(image, mask, kspace, weight, edge):
    misfit = mask * np.fft.fft2(image, norm="ortho") - kspace
    total = 0.0
    for i in range(6):
        for j in range(8):
            down, right = image[(i + 1) % 6, j] - image[i, j], image[i, (j + 1) % 8] - image[i, j]
            total += np.sqrt(down**2 + right**2 + edge**2) - edge
    return 0.5 * np.sum(abs(misfit) ** 2) + weight * total


def test_the_slice_is_a_picture_between_0_and_1(client):
    image = client.read_slice()
    assert image.shape == (256, 256)
    assert (image.min(), image.max()) == (0, 1)


def test_the_mask_keeps_a_third_and_all_of_the_centre(client):
    mask = client.sampling_mask((256, 256), fraction=1 / 3)
    assert np.count_nonzero(mask) == round(256 * 256 / 3)
    near = np.r_[0:12, -11:0]
    assert mask[np.ix_(near, near)].all()


def test_the_mask_is_the_same_every_time_and_thins_outwards(client):
    mask = client.sampling_mask((64, 64), fraction=1 / 3)
    assert np.array_equal(mask, client.sampling_mask((64, 64), fraction=1 / 3))
    assert not np.array_equal(mask, client.sampling_mask((64, 64), fraction=1 / 3, seed=1))
    centred = np.fft.fftshift(mask)
    assert centred[16:48, 16:48].mean() > 2 * centred[:16].mean()


def test_psnr_of_an_error_of_a_tenth_is_20_db(client):
    truth = np.zeros((4, 4))
    assert client.psnr(truth + 0.1, truth) == pytest.approx(20)


def test_forward_is_the_masked_orthonormal_transform(maps, problem):
    image, mask, _ = problem
    measured = maps.forward(image, mask)
    assert measured.dtype == np.complex128
    np.testing.assert_allclose(measured, mask * np.fft.fft2(image, norm="ortho"), atol=1e-14)


def test_the_adjoint_of_forward_is_what_conjugating_its_vjp_gives(maps, problem):
    image, mask, kspace = problem
    _, pulled = maps.forward.vjp((image, mask), kspace.conj(), argnums=0)
    np.testing.assert_allclose(pulled, np.fft.ifft2(mask * kspace, norm="ortho").real, atol=1e-14)


def test_loss_is_misfit_and_total_variation(maps, problem):
    image, mask, kspace = problem
    value = maps.loss(image, mask, kspace, 0.3)
    np.testing.assert_allclose(value, numpy_loss(image, mask, kspace, 0.3, maps.EDGE), rtol=1e-13)


def test_the_gradient_of_loss_is_its_finite_difference(client, maps, problem):
    image, mask, kspace = problem
    assert client.gradient_error(maps.loss, image, mask, kspace, 0.3) < 1e-6


def test_a_bar_tells_on_a_pipe_only_at_its_end_when_it_is_quick(client, capsys):
    bar = client.Bar(total=10)
    for _ in range(4):
        bar.step("loss 1")
    assert capsys.readouterr().err == ""
    bar.close("loss 0")
    assert capsys.readouterr().err == f"  [{'#' * 30}] 4/4 loss 0\n"
