"""PyTorch tensors."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from gradwire._errors import ArgumentError, DTypeError, WireError
from gradwire.kinds._kind import comes_from
from gradwire.wire import allowed_dtype

_BITS = {"bfloat16": "int16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}
"""Dtypes that NumPy and torch share only as bits: the integers that carry them across."""


class TorchKind:
    name = "torch"

    def owns(self, cls: type) -> bool:
        torch: Any = sys.modules.get("torch")
        return torch is not None and comes_from(cls, "torch") and issubclass(cls, torch.Tensor)

    def to_numpy(self, x: Any) -> np.ndarray:
        """A view of a CPU tensor; a copy of one on another device, or lazily conjugated or negated.

        Raises:
            ArgumentError: a tensor that torch differentiates or maps over, or one
                without plain values in memory (sparse, meta).
            DTypeError: a dtype that cannot be sent.
        """
        import torch

        unpack_dual: Any = torch.autograd.forward_ad.unpack_dual
        if x.requires_grad or unpack_dual(x).tangent is not None:
            raise _refused("torch differentiates this tensor, and would not see the call.", x)
        if x.layout is not torch.strided or x.is_meta:
            raise ArgumentError(
                "Only dense tensors with values can be sent: use to_dense().",
                expected="a strided torch.Tensor",
                got=f"{x.layout} on {x.device}",
            )
        name = str(x.dtype).removeprefix("torch.")
        try:
            dtype = allowed_dtype(name)
        except WireError as error:
            raise DTypeError(
                "Tensors of this dtype cannot be sent: convert it first.", expected=error.expected, got=name
            ) from None
        host = x.cpu().resolve_conj().resolve_neg()
        bits = _BITS.get(name)
        if bits is not None:
            host = host.view(getattr(torch, bits))
        try:
            a: np.ndarray = host.numpy()
        except RuntimeError as error:
            # Inside torch.func.vmap and jvp a tensor stands for others and has no memory of its own.
            raise _refused("torch gives no access to the values of this tensor.", x) from error
        return a if bits is None else a.view(dtype)

    def from_numpy(self, a: np.ndarray, like: Any) -> Any:
        """A writable tensor on the device of ``like``."""
        import torch

        if not a.flags.writeable or any(stride < 0 for stride in a.strides):
            a = a.copy()
        name = a.dtype.name
        if name in _BITS:
            return torch.from_numpy(a.view(_BITS[name])).view(getattr(torch, name)).to(like.device)
        return torch.from_numpy(a).to(like.device)


def _refused(reason: str, x: Any) -> ArgumentError:
    return ArgumentError(
        f"{reason} gradwire.interop.torch makes a map that torch differentiates through; "
        "or pass x.detach() if no derivative is wanted.",
        expected="a torch.Tensor that does not require grad",
        got=f"{x.dtype} of shape {tuple(x.shape)}" + (", requires_grad=True" if x.requires_grad else ""),
    )


KIND = TorchKind()
