"""PyTorch tensors go out as what they show, and come back as fresh tensors."""

from __future__ import annotations

import sys
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from gradwire._errors import ArgumentError, DTypeError  # noqa: E402
from gradwire.kinds import kind_of, leading  # noqa: E402
from gradwire.wire._dtypes import EXTENDED, NAMES  # noqa: E402


def test_a_torch_answer_is_writable_and_owns_its_memory() -> None:
    locked = np.ones(3)
    locked.flags.writeable = False
    for a in (np.ones(3), locked):
        like = torch.ones(2)
        kind = kind_of(like)
        assert kind is not None
        back = kind.from_numpy(a, like)
        back += 1
        assert back.tolist() == [2, 2, 2] and like.tolist() == [1, 1]
    assert locked.tolist() == [1, 1, 1]


@pytest.mark.parametrize("name", (*NAMES, *EXTENDED))
def test_a_torch_tensor_on_the_cpu_crosses_without_a_copy_both_ways(name: str) -> None:
    x = torch.ones(10, 10).to(getattr(torch, name)).T
    kind = kind_of(x)
    assert kind is not None
    host = kind.to_numpy(x)
    assert host.__array_interface__["data"][0] == x.data_ptr()
    assert kind.from_numpy(host, x).data_ptr() == x.data_ptr()


TORCH_VIEWS = {
    "transposed": lambda t: t.T,
    "strided": lambda t: t[:, ::2],
    "expanded": lambda t: t[0].expand(5, -1),
    "conjugated": lambda t: t.conj(),
    "negated": torch._neg_view,
    "negated imaginary part": lambda t: t.conj().imag,
}


@pytest.mark.parametrize("view", TORCH_VIEWS)
def test_a_torch_view_is_sent_as_what_it_shows(view: str) -> None:
    x = TORCH_VIEWS[view](torch.arange(24.0).reshape(4, 6) * (1 + 2j))
    kind = kind_of(x)
    assert kind is not None
    assert kind.to_numpy(x).tolist() == x.tolist()


def test_torch_tensors_that_torch_differentiates_are_refused_with_the_way_to_go() -> None:
    seen: list[str] = []

    def refused(x: Any) -> Any:
        kind = kind_of(x)
        assert kind is not None
        with pytest.raises(ArgumentError, match=r"gradwire\.interop\.torch"):
            kind.to_numpy(x)
        seen.append(type(x).__name__)
        return x

    refused(torch.ones(3, requires_grad=True))
    refused(torch.nn.Parameter(torch.ones(3)))
    with torch.no_grad():
        refused(torch.nn.Parameter(torch.ones(3)))
    torch.func.grad(lambda x: refused(x).sum())(torch.ones(3))
    torch.vmap(refused)(torch.ones(3, 2))
    assert len(seen) == 5


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_forward_mode_torch_tensors_are_refused_too() -> None:
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(torch.ones(2), torch.ones(2))
        kind = kind_of(dual)
        assert kind is not None
        with pytest.raises(ArgumentError, match=r"gradwire\.interop\.torch"):
            kind.to_numpy(dual)


def test_a_detached_parameter_is_taken() -> None:
    x = torch.nn.Parameter(torch.ones(3)).detach()
    kind = kind_of(x)
    assert kind is not None and kind.to_numpy(x).tolist() == [1, 1, 1]


@pytest.mark.parametrize("x", [torch.eye(3).to_sparse(), torch.empty(3, device="meta")])
def test_torch_tensors_without_plain_values_are_refused(x: object) -> None:
    kind = kind_of(x)
    assert kind is not None
    with pytest.raises(ArgumentError):
        kind.to_numpy(x)


def test_without_ml_dtypes_bfloat16_tensors_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    x = torch.ones(3, dtype=torch.bfloat16)
    kind = kind_of(x)
    assert kind is not None
    with pytest.raises(DTypeError, match="ml_dtypes: install it"):
        kind.to_numpy(x)


def test_where_kinds_mix_torch_leads_after_jax_and_before_numpy() -> None:
    n, j, t = np.ones(1), jnp.ones(1), torch.ones(1)
    assert leading([n, t, j])[0].name == "jax"
    kind, like = leading([1.0, n, t, torch.zeros(1)])
    assert kind.name == "torch" and like is t
