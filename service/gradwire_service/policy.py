"""At which precision a query computes, and at which it answers. Nothing else decides dtypes.

After jmp's policies: a frozen value with a string form.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np

from gradwire._errors import ArgumentError
from gradwire._trees import is_inexact, is_number

INPUT = "input"

BITS = {"float64": 64, "float32": 32, "float16": 16, "bfloat16": 16}
"""The real dtypes a policy may name, and how wide they are."""

MATMUL = ("default", "high", "highest", "bfloat16", "tensorfloat32", "float32")
"""What ``jax.default_matmul_precision`` takes."""


@dataclass(frozen=True)
class Policy:
    """How precisely a query is answered.

    Attributes:
        compute: the real dtype to compute in (complex follows), or ``"input"``.
        output: the real dtype to answer in, or ``"input"``.
        matmul: the precision of matrix products; ``"highest"`` allows no silent TF32.
    """

    compute: str = INPUT
    output: str = INPUT
    matmul: str = "highest"

    @classmethod
    def parse(cls, text: str) -> Policy:
        """From ``"input"``, a dtype's name (to compute and answer in), or ``"compute=…,output=…,matmul=…"``.

        Raises:
            ArgumentError: anything else.
        """
        text = text.strip()
        if "=" not in text:
            return cls(compute=_dtype(text), output=_dtype(text))
        chosen: dict[str, str] = {}
        for part in text.split(","):
            key, _, value = (piece.strip() for piece in part.partition("="))
            if key in chosen or key not in ("compute", "output", "matmul"):
                raise _refused(f"{key[:32]!r}", 'one each of "compute=", "output=", "matmul="')
            if key == "matmul" and value not in MATMUL:
                raise _refused(f"matmul={value[:32]}", f"matmul one of {', '.join(MATMUL)}")
            chosen[key] = value if key == "matmul" else _dtype(value)
        return cls(**chosen)

    def __str__(self) -> str:
        if self.compute == self.output and self.matmul == "highest":
            return self.compute
        return f"compute={self.compute},output={self.output},matmul={self.matmul}"

    def resolve(self, leaves: Iterable[Any]) -> Precision:
        """What this policy means for these arguments (arrays and Python numbers).

        The input's precision is that of its widest floating or complex array; without
        one it is 64 bit. Integers and Python numbers never decide.
        """
        widest, name, has_complex = 0, "float64", False
        for leaf in leaves:
            if is_number(leaf) or not is_inexact(leaf.dtype):
                continue
            bits, real = real_dtype(leaf.dtype)
            has_complex = has_complex or leaf.dtype.kind == "c"
            if bits > widest:
                widest, name = bits, real
        input_bits = widest or 64
        if self.compute == INPUT:
            compute, bits = name, input_bits
        else:
            compute, bits = self.compute, BITS[self.compute]
        # Complex numbers have no fewer than two float32.
        computed_in = "float32" if has_complex and bits < 32 else compute
        output = name if self.output == INPUT else self.output
        as_computed = self.compute == INPUT and self.output == INPUT
        return Precision(
            x64=bits == 64,
            cast=None if self.compute == INPUT else compute,
            output=None if as_computed else output,
            matmul=self.matmul,
            computed_in=computed_in,
            lossy=BITS.get(computed_in, bits) < input_bits,
        )


@dataclass(frozen=True)
class Precision:
    """A policy, resolved for the arguments of one query.

    Attributes:
        x64: whether JAX's 64-bit mode is on.
        cast: the real dtype arguments are cast to, or None: they stay as they are.
        output: the real dtype of the answer, or None: as computed.
        matmul: for ``jax.default_matmul_precision``.
        computed_in: the real dtype of the computation, for people.
        lossy: whether that is below the input's precision.
    """

    x64: bool
    cast: str | None
    output: str | None
    matmul: str
    computed_in: str
    lossy: bool


@lru_cache(maxsize=256)
def real_dtype(dtype: Any) -> tuple[int, str]:
    """The width in bits and the name of the real dtype under a floating or complex one."""
    dtype = np.dtype(dtype)
    if dtype.kind == "c":
        return (64, "float64") if dtype.itemsize == 16 else (32, "float32")
    if dtype.kind == "f":
        return min(dtype.itemsize * 8, 64), dtype.name
    return dtype.itemsize * 8, dtype.name


def cast_dtype(dtype: np.dtype[Any], real: str) -> np.dtype[Any]:
    """The dtype that an array of ``dtype`` has at the precision ``real``: complex follows, others stay."""
    if dtype.kind == "c":
        return np.dtype(np.complex128 if real == "float64" else np.complex64)
    if not is_inexact(dtype):
        return dtype
    return np.dtype(ml_dtypes.bfloat16) if real == "bfloat16" else np.dtype(real)


def _dtype(name: str) -> str:
    if name != INPUT and name not in BITS:
        raise _refused(repr(name[:64]), f'"input", {", ".join(BITS)}, or "compute=…,output=…,matmul=…"')
    return name


def _refused(got: str, expected: str) -> ArgumentError:
    return ArgumentError("There is no such precision.", argument="precision", expected=expected, got=got)
