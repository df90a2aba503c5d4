"""Each example, served by ``gradwire serve`` and used by its client in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import gradwire
from gradwire_service.demo import command, serving

EXAMPLES = Path(__file__).parents[2] / "examples"

TUTORIAL = """\
polynomial(2.0) = 11.0
grad(polynomial)(2.0) = 17.0
value_and_grad(polynomial)(2.0) = (11.0, 17.0)
grad(grad(polynomial))(2.0) = 16.0
grad(grad(grad(polynomial)))(2.0) = 6.0
grad(surface)(3.0, 2.0) = 12.0
grad(surface, argnums=1)(3.0, 2.0) = 21.0
grad(surface, argnums=(0, 1))(3.0, 2.0) = (12.0, 21.0)
grad(grad(surface), argnums=1)(3.0, 2.0) = 6.0
quadratic(x, a) = 1.0
grad(quadratic)(x, a) = [0.0, -2.0]
hessian(quadratic)(x, a) = [[2.0, 2.0], [2.0, 4.0]]
cartesian(point) = [2.0, 0.0, 0.0]
jacfwd(cartesian)(point) = [[1.0, 0.0, 0.0], [0.0, 0.0, 2.0], [0.0, -2.0, 0.0]]
jacrev(cartesian)(point) = [[1.0, 0.0, 0.0], [0.0, 0.0, 2.0], [0.0, -2.0, 0.0]]
vmap(quartic, over_x)(xs, 0.5) = [0.0, -1.5, 0.0]
vmap(grad(grad(quartic)), over_x)(xs, 0.5) = [-4.0, 2.0, 20.0]
"""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    files = (EXAMPLES / f"{name}.py" for name in ("mri", "fft", "tutorial"))
    with serving(*files) as url:
        yield url


def test_all_examples_are_hosted_side_by_side(url):
    with gradwire.connect(url) as lab:
        assert set(lab) == {
            "forward", "loss", "fft", "polynomial", "surface", "quadratic", "cartesian", "quartic",
        }  # fmt: skip


def test_the_tutorials_results_come_back_from_remote_maps(url):
    script = [sys.executable, EXAMPLES / "tutorial_client.py", url]
    assert subprocess.run(script, check=True, capture_output=True, text=True).stdout == TUTORIAL


def test_the_jacobian_of_the_fft_is_the_dft_matrix(url):
    n = 5
    x = np.random.default_rng(0).standard_normal(n)
    dft = np.exp(-2j * np.pi * np.outer(np.arange(n), np.arange(n)) / n)
    with gradwire.connect(url) as lab:
        np.testing.assert_allclose(lab["fft"](x), np.fft.fft(x), atol=1e-13)
        np.testing.assert_allclose(lab["fft"].jacobian(x), dft, atol=1e-13)
        complex_jacobian = lab["fft"].jacobian(x + 0j, holomorphic=True)
        np.testing.assert_allclose(complex_jacobian, dft, atol=1e-13)


def test_the_demo_reconstructs_and_says_so_on_its_last_line(tmp_path, capfd):
    picture = tmp_path / "mri.png"
    status = command(["--examples", str(EXAMPLES), "--out", str(picture)])
    figures = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert status == 0
    assert figures.keys() == {
        "psnr_zero_filled", "psnr_reconstructed", "gain_db", "gradient_error",
        "iterations", "seconds", "jax_in_client", "picture",
    }  # fmt: skip
    assert 14 <= figures["gain_db"] <= 18
    assert figures["gradient_error"] < 1e-6
    assert figures["picture"] == str(picture)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_demo_without_jax_refuses_an_environment_that_has_it(capfd):
    assert command(["--examples", str(EXAMPLES), "--client-python", sys.executable]) != 0
    assert "JAX can be imported" in capfd.readouterr().err


def test_a_service_that_cannot_start_says_why(tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text("raise RuntimeError('no such scanner')")
    with pytest.raises(RuntimeError, match="no such scanner"), serving(broken):
        pass


def test_a_service_ends_with_its_block():
    with serving(EXAMPLES / "fft.py") as url:
        assert list(gradwire.connect(url)) == ["fft"]
    with pytest.raises(gradwire.ServiceUnavailable):
        gradwire.connect(url, timeout=1)["fft"]


def test_the_demo_asks_for_the_examples_it_needs(tmp_path, capsys):
    with pytest.raises(SystemExit):
        command(["--examples", str(tmp_path)])
    assert "examples folder" in capsys.readouterr().err
