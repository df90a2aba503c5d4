"""``gradwire check``: are the derivatives of these maps right?

Nothing here knows how a derivative is computed; a map is asked through the operator
interface alone. Three tests:

- **Taylor**: ``‖f(x + hv) − f(x) − h·J v‖`` must fall as h² where h is small and rounding
  is not yet in the way. Many steps are taken, so no step has to be guessed.
- **adjoint**: ``Re Σ w·(J v) = Re Σ (Jᵀw)·v``, for JAX's transpose and random v, w.
- **agreement**: a dense or kept derivative says the same as one product with it.

Everything is computed at 64 bits where the map lets it be.
"""

from __future__ import annotations

import argparse
import sys
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np

from gradwire._errors import ArgumentError, GradwireError, NotDifferentiable
from gradwire._reports import CheckReport, Finding, Outcome, check_table
from gradwire._trees import Tree, is_inexact, is_number, leaves, tree_map
from gradwire_service.map import Map
from gradwire_service.sample import arguments_for

STEPS = 0.5 * 4.0 ** -np.arange(28)
"""From half the size of the argument down to below the spacing of float64."""

ORDER = 1.8
"""The observed order that counts as second."""

ACCURATE = 1e-5
"""A derivative that is right to this in a random direction passes whatever the observed order: implicit
derivatives of iterative solvers are as exact as their solves, and no more."""

AGREEMENT = 1e-6
"""How far two ways to one number may differ, relative to the sum of the magnitudes that went into it."""

COARSEST = 1e-3
"""How far at most, for a map that computes at less than 64 bits inside."""

LARGEST = 10**6
"""Elements of a dense derivative, beyond which it is not formed."""

Vector = np.ndarray


def check_map(
    map: Map,
    *,
    at: tuple[tuple[Any, ...], dict[str, Any]] | None = None,
    seed: int = 0,
    precision: str = "float64",
) -> CheckReport:
    """Test every derivative that ``map`` says it has, at its example or at made-up arguments.

    Args:
        map: the map. Its example's arguments are used as they are; without an example,
            arguments are made up from its declared signature.
        at: positional and keyword arguments to test at, instead of the example.
        seed: of the random directions and made-up arguments.
        precision: to compute at.
    """
    rng = np.random.default_rng([seed, zlib.crc32(map.name.encode())])
    example = map._declaration.example
    exact = map.using(precision=precision)
    if at is None and example is not None:
        at = (example, {})
    if at is not None:
        try:
            point = _at(exact, *at, rng)
        except Exception as error:
            return CheckReport(map.name, failed=f"at these arguments: {_told(error)}")
    else:
        why = ""
        for positive in (False, True):
            try:
                args, kwargs = arguments_for(map.signature, rng, positive=positive)
            except ArgumentError as error:
                return CheckReport(map.name, unchecked=str(error))
            try:
                point = _at(exact, args, kwargs, rng)
            except Exception as error:
                why = _told(error)
                continue
            if point.finite:
                break
            why = "its value is not finite"
        else:
            return CheckReport(
                map.name, unchecked=f"made-up arguments do not suit it, give it example=: {why}"
            )
    if not point.finite:
        return CheckReport(map.name, failed="its value at these arguments is not finite")
    try:
        positions = map.signature.differentiated(None, point.args, map=map.name)
    except NotDifferentiable:
        return CheckReport(map.name, unchecked="it has no floating or complex argument")
    operations = map.operations
    findings = []
    for position in positions:
        along = _Along(point, position, rng, operations)
        for derivative, (test, function) in CHECKS.items():
            finding = _finding(derivative, test, function, along)
            # One that it does not say it has is tried too: a rule that raises looks as if it were not there.
            if derivative in operations or finding.outcome == "FAILED":
                findings.append(finding)
    return CheckReport(map.name, tuple(findings))


@dataclass(frozen=True)
class _Verdict:
    outcome: Outcome
    figure: str
    why: str = ""


def _finding(derivative: str, test: str, function: Callable[[_Along], _Verdict], along: _Along) -> Finding:
    try:
        verdict = function(along)
    except (NotDifferentiable, NotImplementedError) as error:
        verdict = _Verdict("skipped", "", _told(error))
    except Exception as error:
        # Whatever a hand-written rule raises, the other derivatives and maps are still to be tested.
        verdict = _Verdict("FAILED", "", _told(error))
    return Finding(derivative, along.argument, test, verdict.outcome, verdict.figure, verdict.why)


def _told(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, GradwireError) else f"{type(error).__name__}: {text}"


@dataclass(frozen=True)
class _Point:
    """A map and the arguments it is tested at."""

    f: Map
    args: tuple[Tree, ...]
    kwargs: dict[str, Tree]
    value: Tree

    @property
    def finite(self) -> bool:
        return bool(np.isfinite(flat(self.value)).all())


def _at(f: Map, args: Sequence[Any], kwargs: dict[str, Any], rng: np.random.Generator) -> _Point:
    arrays = tuple(
        arg if f.signature.at(position).static else tree_map(_array, arg) for position, arg in enumerate(args)
    )
    return _Point(f, arrays, kwargs, tree_map(np.asarray, f(*arrays, **kwargs)))


def _array(leaf: Any) -> Any:
    """A leaf that can be stepped from: floating Python numbers as arrays."""
    if is_number(leaf):
        return np.asarray(leaf) if isinstance(leaf, float | complex) else leaf
    return np.asarray(leaf)


class _Along:
    """A map along one random direction of one argument, and across one random cotangent."""

    def __init__(
        self, point: _Point, position: int, rng: np.random.Generator, operations: Sequence[str]
    ) -> None:
        self.point = point
        self.position = position
        self.argument = point.f.signature.at(position).name
        self.operations = operations
        self.direction = tree_map(lambda leaf: _random(leaf, rng), point.args[position])
        self.second = tree_map(lambda leaf: _random(leaf, rng), point.args[position])
        self.cotangent = tree_map(lambda leaf: _random(leaf, rng, scale=1.0), point.value)
        self.v = flat(self.direction)
        self.w = flat(self.cotangent)
        self.start = flat(point.value)
        self.spacing = max(_spacing(leaf.dtype) for leaf in _inexact(point.args[position]))

    def taylor(self, values: Sequence[Vector], start: Vector, slope: Vector) -> _Verdict:
        """`taylor` of values at `STEPS` along the direction."""
        return taylor(values, start, slope, spacing=self.spacing)

    def stepped(self, h: float) -> tuple[Tree, ...]:
        """The arguments, this one moved by ``h`` times the direction."""
        args = list(self.point.args)
        args[self.position] = _moved(args[self.position], self.direction, h)
        return tuple(args)

    @cached_property
    def values(self) -> list[Vector]:
        """The value at every step."""
        return [flat(self.point.f(*self.stepped(h), **self.point.kwargs)) for h in STEPS]

    def jvp(self, times: float = 1.0, args: tuple[Tree, ...] | None = None, second: bool = False) -> Vector:
        """The derivative in the direction (or in the second one), at the point or at ``args``."""
        direction = tree_map(lambda leaf: times * leaf, self.second if second else self.direction)
        where = self.point.args if args is None else args
        _, tangent = self.point.f.jvp(where, (direction,), argnums=(self.position,), **self.point.kwargs)
        return flat(tangent)

    def vjp(self, times: float = 1.0) -> Vector:
        cotangent = tree_map(lambda leaf: times * leaf, self.cotangent)
        _, (found,) = self.point.f.vjp(
            self.point.args, cotangent, argnums=(self.position,), **self.point.kwargs
        )
        return flat(found)

    def grad(self, args: tuple[Tree, ...]) -> Vector:
        return flat(self.point.f.grad(*args, argnums=self.position, **self.point.kwargs))

    def hvp(self) -> Vector:
        (product,) = self.point.f.hvp(
            self.point.args, (self.direction,), argnums=(self.position,), **self.point.kwargs
        )
        return flat(product)

    @cached_property
    def tolerance(self) -> float:
        """How far two computations of one derivative may differ: rounding, as seen in its own linearity."""
        once, thrice = (
            (self.jvp(), self.jvp(3.0)) if "jvp" in self.operations else (self.vjp(), self.vjp(3.0))
        )
        return _tolerance(_ratio(float(np.linalg.norm(thrice / 3 - once)), float(np.linalg.norm(once))))


def _taylor_of_jvp(along: _Along) -> _Verdict:
    return along.taylor(along.values, along.start, along.jvp())


def _adjoint(along: _Along) -> _Verdict:
    """vjp against jvp; for maps without jvp, Taylor of the value's product with the cotangent."""
    across = along.vjp()
    if "jvp" not in along.operations:
        return along.taylor(
            [_real_dot(along.w, value) for value in along.values],
            _real_dot(along.w, along.start),
            _real_dot(across, along.v),
        )
    forward = along.jvp()
    left, right = _real_dot(along.w, forward), _real_dot(across, along.v)
    sizes = np.sum(np.abs(along.w * forward)) + np.sum(np.abs(across * along.v))
    noise = np.sum(np.abs(along.w * (along.jvp(3.0) / 3 - forward)))
    noise += np.sum(np.abs((along.vjp(3.0) / 3 - across) * along.v))
    return _compared(abs(left.item() - right.item()), sizes, _tolerance(_ratio(noise, sizes)))


def _taylor_of_grad(along: _Along) -> _Verdict:
    slope = _real_dot(along.grad(along.point.args), along.v)
    return along.taylor([value.real for value in along.values], along.start.real, slope)


def _agreement_of_value_and_grad(along: _Along) -> _Verdict:
    value, gradient = along.point.f.value_and_grad(
        *along.point.args, argnums=along.position, **along.point.kwargs
    )
    expected = np.concatenate([along.start, along.grad(along.point.args)])
    return _agreed(np.concatenate([flat(value), flat(gradient)]), expected, along)


def _agreement_of_jacobian(along: _Along) -> _Verdict:
    _refuse_large(along.start.size * along.v.size)
    jacobian = along.point.f.jacobian(*along.point.args, argnums=along.position, **along.point.kwargs)
    rows, columns = _inexact(along.point.value), _inexact(along.point.args[along.position])
    matrix = _matrix(jacobian, rows, columns)
    if "jvp" in along.operations:
        product = matrix @ along.v
        return _agreed(product if np.iscomplexobj(along.start) else product.real, along.jvp(), along)
    product = along.w @ matrix
    return _agreed(product if np.iscomplexobj(along.v) else product.real, along.vjp(), along)


def _agreement_of_linearize(along: _Along) -> _Verdict:
    with along.point.f.linearize(*along.point.args, argnums=along.position, **along.point.kwargs) as kept:
        if "jvp" in along.operations:
            return _agreed(flat(kept.jvp(along.direction)), along.jvp(), along)
        return _agreed(flat(kept.vjp(along.cotangent)), along.vjp(), along)


def _taylor_of_hvp(along: _Along) -> _Verdict:
    gradients = [along.grad(along.stepped(h)) for h in STEPS]
    return along.taylor(gradients, along.grad(along.point.args), along.hvp())


def _taylor_of_hessian(along: _Along) -> _Verdict:
    """The Hessian in two directions, against the first derivative in one of them, stepped in the other."""
    _refuse_large(along.start.size * along.v.size**2)
    hessian = along.point.f.hessian(*along.point.args, argnums=along.position, **along.point.kwargs)
    rows, columns = _inexact(along.point.value), _inexact(along.point.args[along.position])
    u = flat(along.second)
    if "jvp" in along.operations:

        def first(args: tuple[Tree, ...]) -> Vector:
            return along.jvp(args=args, second=True)
    else:

        def first(args: tuple[Tree, ...]) -> Vector:
            return _real_dot(along.grad(args), u)

    pairs = [np.zeros((a.size, b.size)) for a in columns for b in columns]
    products = np.concatenate(
        [np.kron(a.ravel(), b.ravel()) for a in _split(u, columns) for b in _split(along.v, columns)]
    )
    second = _matrix(hessian, rows, pairs) @ products
    return along.taylor([first(along.stepped(h)) for h in STEPS], first(along.point.args), second)


CHECKS: dict[str, tuple[str, Callable[[_Along], _Verdict]]] = {
    "jvp": ("Taylor", _taylor_of_jvp),
    "vjp": ("adjoint", _adjoint),
    "grad": ("Taylor", _taylor_of_grad),
    "value_and_grad": ("agreement", _agreement_of_value_and_grad),
    "jacobian": ("agreement", _agreement_of_jacobian),
    "linearize": ("agreement", _agreement_of_linearize),
    "hvp": ("Taylor", _taylor_of_hvp),
    "hessian": ("Taylor", _taylor_of_hessian),
}
"""How each derivative is tested."""


def taylor(values: Sequence[Vector], start: Vector, slope: Vector, *, spacing: float = 2.0**-52) -> _Verdict:
    """Whether ``slope`` is the derivative of what took ``values`` at `STEPS` and ``start`` at 0.

    The order is observed where it says most: at the smallest steps whose remainders stand
    clear of rounding. At larger steps a wrong derivative can hide behind higher terms.
    Steps of ``spacing`` or less, relative to the argument, are rounded by its own dtype.
    """
    finite = [k for k, value in enumerate(values) if np.isfinite(value).all()]
    if len(finite) < 6 or not np.isfinite(slope).all():
        return _Verdict(
            "FAILED" if len(finite) >= 6 else "skipped", "", "values near the point are not finite"
        )
    steps = STEPS[finite]
    changes = np.array([values[k] - start for k in finite])
    remainders = np.linalg.norm(changes - steps[:, None] * slope, axis=1)
    length = float(np.linalg.norm(slope))

    # Rounding shows where the value first answers to a step at all: below that it is a staircase.
    weighty = np.abs(slope) >= 1e-3 * np.abs(slope).max(initial=0.0)
    moved = (changes[:, weighty] != 0).all(axis=1) if length > 0 else (changes != 0).any(axis=1)
    first = steps[moved].min(initial=np.inf)
    if first > 0.02:
        if length == 0:
            return _Verdict("ok", "constant nearby")
        return _Verdict("FAILED", "", "the value stays where the derivative says that it changes")
    rounding = remainders[steps <= 16 * max(first, spacing)].max()
    clear = np.flatnonzero(remainders > 30 * rounding)
    accuracy = remainders / (steps * length) if length > 0 else np.full(len(steps), np.inf)
    right = bool(accuracy.min() <= ACCURATE)
    if clear.size == 0:
        figure = f"right to {accuracy.min():.0e}"
        return (
            _Verdict("ok", figure) if right else _Verdict("skipped", figure, "rounding hides the remainder")
        )
    last = int(clear[-1])
    windows = [(max(last - 2, 0), last), (max(last - 1, 0), min(last + 1, len(steps) - 1))]
    order = max(
        np.log(remainders[a] / max(remainders[b], 1e-300)) / np.log(steps[a] / steps[b])
        for a, b in windows
        if a < b
    )
    if order >= ORDER or right:
        return _Verdict("ok", f"order {order:.1f}")
    return _Verdict(
        "FAILED",
        f"order {order:.1f}",
        f"the remainder does not fall with the square of the step: off by {accuracy[last]:.0e}, relatively",
    )


def _tolerance(noise: float) -> float:
    return float(np.clip(100 * noise, AGREEMENT, COARSEST))


def _ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole > 0 else (0.0 if part == 0 else np.inf)


def _compared(difference: float, size: float, tolerance: float) -> _Verdict:
    apart = _ratio(difference, size)
    if apart <= tolerance:
        return _Verdict("ok", f"apart {apart:.0e}")
    return _Verdict("FAILED", f"apart {apart:.0e}", f"more than {tolerance:.0e}")


def _agreed(got: Vector, expected: Vector, along: _Along) -> _Verdict:
    sizes = float(np.linalg.norm(expected) + np.linalg.norm(got))
    return _compared(float(np.linalg.norm(got - expected)), sizes, along.tolerance)


def _refuse_large(size: int) -> None:
    if size > LARGEST:
        raise NotImplementedError(f"with {size} elements it is too large to be formed here")


def _inexact(tree: Tree) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in leaves(tree) if not is_number(leaf) and is_inexact(leaf.dtype)]


def flat(tree: Tree) -> Vector:
    """The floating and complex leaves of ``tree`` as one float64 or complex128 vector."""
    parts = [
        np.asarray(leaf, np.complex128 if leaf.dtype.kind == "c" else np.float64) for leaf in _inexact(tree)
    ]
    return np.concatenate([part.ravel() for part in parts]) if parts else np.zeros(0)


def _spacing(dtype: Any) -> float:
    finfo: Any = ml_dtypes.finfo  # NumPy's own does not know bfloat16
    return float(finfo(dtype).eps)


def _split(vector: Vector, like: Sequence[np.ndarray]) -> list[Vector]:
    return np.split(vector, np.cumsum([leaf.size for leaf in like])[:-1])


def _matrix(tree: Tree, rows: Sequence[np.ndarray], columns: Sequence[np.ndarray]) -> np.ndarray:
    """The nested blocks of a Jacobian as one matrix, value by argument."""
    blocks = iter(_inexact(tree))
    return np.block([[next(blocks).reshape(row.size, column.size) for column in columns] for row in rows])


def _real_dot(a: Vector, b: Vector) -> Vector:
    return np.atleast_1d(np.sum(a * b).real)


def _random(leaf: Any, rng: np.random.Generator, scale: float | None = None) -> Any:
    """A random (co)tangent of ``leaf``, as large as it is unless ``scale`` says; None for integers."""
    if is_number(leaf) or not is_inexact(leaf.dtype):
        return None
    if scale is None:
        scale = float(np.sqrt(np.mean(np.abs(flat(leaf)) ** 2))) if leaf.size else 1.0
        scale = scale or 1.0
    drawn = rng.standard_normal(leaf.shape)
    if leaf.dtype.kind == "c":
        drawn = drawn + 1j * rng.standard_normal(leaf.shape)
    return np.asarray(scale * drawn).astype(leaf.dtype)


def _moved(tree: Tree, direction: Tree, h: float) -> Tree:
    if direction is None:
        return tree
    if isinstance(tree, tuple | list):
        return type(tree)([_moved(a, b, h) for a, b in zip(tree, direction, strict=True)])
    if isinstance(tree, dict):
        return {key: _moved(tree[key], direction[key], h) for key in tree}
    return np.asarray(tree + h * direction).astype(tree.dtype)


def command(argv: Sequence[str]) -> int:
    """``gradwire check FILE… [--strict] [--seed N]``: 0 where nothing failed, else 1."""
    from gradwire_service.serve import load_maps

    parser = argparse.ArgumentParser(
        "gradwire check",
        description="Test every derivative of every Map in the files: Taylor, adjoint, agreement.",
    )
    parser.add_argument("sources", metavar="FILE", nargs="+", help="a Python file or a dotted module")
    parser.add_argument("--strict", action="store_true", help="also fail where a map cannot be checked")
    parser.add_argument("--seed", type=int, default=0, help="of random directions and arguments (default 0)")
    options = parser.parse_args(argv)
    reports = []
    maps = load_maps(options.sources)
    for number, map in enumerate(maps, start=1):
        print(f"checking {map.name} ({number} of {len(maps)})", file=sys.stderr, flush=True)
        reports.append(check_map(map, seed=options.seed))
    print(check_table([row for report in reports for row in report.rows()]))
    failed = [report.map for report in reports if not report.ok]
    unchecked = [report.map for report in reports if report.unchecked is not None]
    print()
    print(f"{len(reports)} maps: {len(failed)} failed, {len(unchecked)} could not be checked")
    return 1 if failed or (options.strict and unchecked) else 0
