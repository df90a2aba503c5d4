"""The operator interface: one set of methods for local maps, remote maps and what transforms return.

`Operator` is the interface as a Protocol; `OperatorBase` is all of it except the answering.
A method turns what the caller gave into a `Call`, and says how to read the answer; a
subclass answers calls: over HTTP (`RemoteMap`), in this process (the service's `Map`),
or with awaitables. Nothing in this module does I/O.
"""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, Self, TypeVar, runtime_checkable

import numpy as np

from gradwire import kinds
from gradwire._blocks import Filling, check_out
from gradwire._errors import (
    ArgumentError,
    DenseFallbackWarning,
    DTypeError,
    GradwireError,
    MapFailed,
    PrecisionWarning,
    WireError,
)
from gradwire._linear import Handle, Jacobian, LinearOperator
from gradwire._reports import REPORTS, CheckReport, CostReport, Explanation
from gradwire._resident import ResidentArray
from gradwire._signature import Signature, static_value
from gradwire._space import Space
from gradwire._sparse import Csr, scipy_sparse
from gradwire._transforms import Transform, checked_argnums, is_position, operations_after
from gradwire._trees import Tree, is_inexact, is_number, leaves, normalized, tree_map
from gradwire.wire import ArraySpec, Bare

T = TypeVar("T")
Argnums = int | Sequence[int]
Mode = Literal["auto", "fwd", "rev"]
Answer = Callable[[str], Any]
"""What came back: ``answer("value")`` is that field, as a pytree of host (or device) arrays."""
Like = tuple[kinds.Kind, Any]

BY_SHAPE = ("eval_shape", "cost", "explain")
"""What is asked by shapes and dtypes alone: arrays are not sent."""


@runtime_checkable
class Operator(Protocol):
    """A differentiable map: a function of arrays (or pytrees of arrays), with its derivatives.

    Shapes: with a value of shape ``m`` and an argument of shape ``n``, ``jacobian`` is
    ``m + n``, ``hessian`` is ``m + n + n``, a tangent and a cotangent of the argument are
    ``n``, and stack dimensions stand in front of both.
    """

    name: str
    version: str
    signature: Signature

    @property
    def operations(self) -> tuple[str, ...]:
        """Which operations this map really has."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The value."""

    def apply(self, *args: Any, **kwargs: Any) -> Any:
        """The value."""

    def jacobian(
        self,
        *args: Any,
        argnums: Argnums = 0,
        mode: Mode = "auto",
        sparse: bool = False,
        holomorphic: bool = False,
        **kwargs: Any,
    ) -> Any:
        """The Jacobian, of shape ``value.shape + argument.shape``."""

    def jvp(self, primals: Any, tangents: Any, argnums: Argnums | None = None, **kwargs: Any) -> Any:
        """``(value, Jacobian times tangents)``."""

    def vjp(self, primals: Any, cotangent: Any, argnums: Argnums | None = None, **kwargs: Any) -> Any:
        """``(value, transposed Jacobian times cotangent)``."""

    def grad(self, *args: Any, argnums: Argnums = 0, holomorphic: bool = False, **kwargs: Any) -> Any:
        """The gradient of a scalar map."""

    def value_and_grad(
        self, *args: Any, argnums: Argnums = 0, holomorphic: bool = False, **kwargs: Any
    ) -> Any:
        """``(value, gradient)`` of a scalar map."""

    def hessian(self, *args: Any, argnums: Argnums = 0, sparse: bool = False, **kwargs: Any) -> Any:
        """The Hessian, of shape ``value.shape + argument.shape + argument.shape``."""

    def hvp(self, primals: Any, tangents: Any, argnums: Argnums | None = None, **kwargs: Any) -> Any:
        """The Hessian of a scalar map times tangents, without forming it."""

    def linearize(self, *args: Any, argnums: Argnums | None = None, **kwargs: Any) -> LinearOperator:
        """The derivative at one point, kept for many products."""

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """Shapes and dtypes of the value; nothing is computed."""

    def check(self, *args: Any, **kwargs: Any) -> CheckReport:
        """Whether the derivatives are right at these arguments."""

    def cost(self, *args: Any, argnums: Argnums | None = None, **kwargs: Any) -> CostReport:
        """What each operation takes, before anything runs."""

    def explain(self, *args: Any, argnums: Argnums | None = None, **kwargs: Any) -> Explanation:
        """Which device, precision, mode and block size would be used, and why."""

    def using(
        self,
        *,
        precision: str | None = None,
        device: str | None = None,
        timeout: float | None = None,
        keep: bool | None = None,
        complex_as: str | None = None,
        nonfinite: str | None = None,
        progress: bool | None = None,
        out: Any = None,
    ) -> Self:
        """The same map with these options."""


@dataclass(frozen=True)
class Options:
    """How a call is answered: None leaves it to the map, then to the service."""

    precision: str | None = None
    device: str | None = None
    timeout: float | None = None
    keep: bool | None = None
    nonfinite: str = "ignore"
    progress: bool = False
    out: Any = None

    def updated(
        self,
        *,
        precision: str | None = None,
        device: str | None = None,
        timeout: float | None = None,
        keep: bool | None = None,
    ) -> Options:
        given = {"precision": precision, "device": device, "timeout": timeout, "keep": keep}
        return replace(self, **{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]


@dataclass(frozen=True)
class Call:
    """One operation asked of a map, its arguments bound and its arrays imported."""

    operation: str
    args: tuple[Tree, ...]
    kwargs: dict[str, Tree]
    argnums: int | tuple[int, ...] | None = None
    tangents: tuple[Tree, ...] | None = None
    cotangent: Tree = None
    mode: Mode = "auto"
    sparse: bool = False
    holomorphic: bool = False
    has_aux: bool = False
    like: Like = (kinds.KINDS[-1], None)


class OperatorBase:
    """`Operator`, sans I/O. Subclasses answer `_perform` and `_handle`."""

    name: str
    version: str
    signature: Signature

    def __init__(
        self, *, name: str, version: str, signature: Signature, doc: str | None, options: Options
    ) -> None:
        self.name = name
        self.version = version
        self.signature = signature
        self.__doc__ = doc
        self._options = options
        self._transforms: tuple[Transform, ...] = ()

    # What a subclass gives.

    def _perform(self, call: Call, read: Callable[[Answer], T]) -> T:
        """Answer ``call`` through ``read``; an async subclass returns an awaitable of it."""
        raise NotImplementedError

    def _fill(self, call: Call, filling: Filling, read: Callable[[np.ndarray], T]) -> T:
        """Answer a ``jacobian`` call block by block into ``filling``, and through ``read``."""
        raise NotImplementedError

    def _handle(self, call: Call, answer: Answer) -> Handle:
        """The linearization that ``answer`` (to a ``linearize`` call) names."""
        raise NotImplementedError

    def _base_operations(self) -> tuple[str, ...]:
        """The operations of the map before any transform."""
        raise NotImplementedError

    def _import_leaf(self, leaf: Any, argument: str) -> Any:
        """A caller's array as it goes into a `Call`."""
        return import_leaf(leaf, argument)

    def _export_leaf(self, leaf: Any, kind: kinds.Kind, like: Any) -> Any:
        """An answer's array as the caller gets it."""
        return kind.from_numpy(leaf, like)

    # What every map can say of itself.

    @property
    def operations(self) -> tuple[str, ...]:
        """Which operations this map really has."""
        return operations_after(self._base_operations(), self._transforms)

    def __repr__(self) -> str:
        text = f"{self.name}{self.signature}"
        for transform in self._transforms:
            text = f"{transform.name}({text})"
        return f"<{type(self).__name__} {text}>"

    def using(
        self,
        *,
        precision: str | None = None,
        device: str | None = None,
        timeout: float | None = None,
        keep: bool | None = None,
        complex_as: str | None = None,
        nonfinite: str | None = None,
        progress: bool | None = None,
        out: Any = None,
    ) -> Self:
        """The same map with these options; those left out stay as they are.

        Args:
            precision: a policy, such as ``"float32"`` or ``"compute=float32,output=input"``.
            device: ``"cpu"``, ``"gpu"``, ``"gpu:1"``.
            timeout: seconds for each request.
            keep: whether `linearize` keeps a copy of the point, to make the linearization
                anew when the service has lost it (True), or raises `LinearizationLost`.
            complex_as: ``"real_pairs"`` gives the map in which complex arrays are real ones, with
                a last axis of two for the real and the imaginary part, on both sides: it has a
                real Jacobian, holomorphic or not. Complex are the arguments that are declared so,
                or all positional ones where none is.
            nonfinite: ``"raise"`` refuses answers that hold NaN or infinities, and says where;
                ``"ignore"`` (the default) hands them on.
            progress: whether `jacobian` shows a bar on stderr while it comes in blocks.
            out: a NumPy array (a memmap too) that `jacobian` fills, and returns.
        """
        for name, given, known in (
            ("complex_as", complex_as, ("real_pairs",)),
            ("nonfinite", nonfinite, ("raise", "ignore")),
        ):
            if given is not None and given not in known:
                raise ArgumentError(
                    "There is no such option.",
                    map=self.name,
                    argument=name,
                    expected=" or ".join(map(repr, known)),
                    got=repr(given),
                )
        for name, text in (("precision", precision), ("device", device)):
            if text is not None and not isinstance(text, str):
                raise ArgumentError(
                    f"{name} is given as text.",
                    map=self.name,
                    argument=name,
                    expected='such as "float32"' if name == "precision" else 'such as "gpu:0"',
                    got=type(text).__name__,
                )
        made = copy.copy(self)
        changed: dict[str, Any] = {
            name: value
            for name, value in (("nonfinite", nonfinite), ("progress", progress), ("out", out))
            if value is not None
        }
        options = self._options.updated(precision=precision, device=device, timeout=timeout, keep=keep)
        made._options = replace(options, **changed)
        if complex_as == "real_pairs":
            return made._transformed(Transform("real_pairs", argnums=self._complex_positions()))
        return made

    def _complex_positions(self) -> tuple[int, ...]:
        """The arguments that are complex: declared so, or, where none is, every positional one."""
        positional = [
            (position, parameter)
            for position, parameter in enumerate(p for p in self.signature.parameters if p.positional)
            if not parameter.static and parameter.required
        ]
        declared = tuple(
            position for position, parameter in positional if (parameter.dtype or "").startswith("Complex")
        )
        return declared or tuple(position for position, _ in positional)

    def _transformed(self, transform: Transform) -> Self:
        made = copy.copy(self)
        made._transforms = (*self._transforms, transform)
        return made

    # The operations.

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The value, in the kind of the arguments."""
        if any(map(kinds.is_dask, leaves((args, *kwargs.values())))):
            for transform in self._transforms:
                if transform.name != "vmap":
                    kinds.refuse_dask(leaves((args, *kwargs.values())), transform.name)
            names = tuple(kwargs)
            return kinds.lazy(
                lambda *values: self(
                    *values[: len(args)], **dict(zip(names, values[len(args) :], strict=True))
                ),
                self.eval_shape(*args, **kwargs),
                *args,
                *kwargs.values(),
            )
        call = self._call("evaluate", args, kwargs)
        return self._perform(call, lambda answer: self._export(answer("value"), call))

    def apply(self, *args: Any, **kwargs: Any) -> Any:
        """The value, in the kind of the arguments."""
        return self(*args, **kwargs)

    def jacobian(
        self,
        *args: Any,
        argnums: Argnums = 0,
        mode: Mode = "auto",
        sparse: bool = False,
        holomorphic: bool = False,
        **kwargs: Any,
    ) -> Any:
        """The Jacobian, of shape ``value.shape + argument.shape``; pytrees nest as in `jax.jacobian`.

        ``mode`` is ``"fwd"``, ``"rev"``, or ``"auto"``: by size, and only a mode that exists.
        With ``sparse=True`` each block is a ``scipy.sparse.csr_array`` of shape (value.size,
        argument.size), both ravelled in C order.

        Large ones: ``out=`` fills an array of yours as the blocks come (a `numpy.memmap`
        too), ``progress=True`` shows a bar; both work here and in `using`.
        """
        options = self._with_keywords(kwargs)
        if mode not in ("auto", "fwd", "rev"):
            raise ArgumentError(
                "There is no such mode.",
                map=self.name,
                argument="mode",
                expected='"auto", "fwd" or "rev"',
                got=repr(mode),
            )
        call = self._call("jacobian", args, kwargs, argnums=argnums)
        call = replace(call, mode=mode, sparse=sparse, holomorphic=holomorphic)
        if options.out is not None or options.progress:
            return self._in_blocks(call, options)
        return self._perform(call, lambda answer: self._export_matrix(answer, call))

    def _with_keywords(self, kwargs: dict[str, Any]) -> Options:
        """The options of this call: ``out`` and ``progress`` are taken out of the map's own keywords."""
        taken = {
            name: kwargs.pop(name)
            for name in ("out", "progress")
            if name in kwargs and not any(p.name == name for p in self.signature.parameters)
        }
        return replace(self._options, **taken)

    def _in_blocks(self, call: Call, options: Options) -> Any:
        """The Jacobian in blocks, into ``out`` or an array of our own."""
        if call.sparse:
            raise ArgumentError(
                "A sparse Jacobian comes whole: ask without out= and progress=.",
                map=self.name,
                argument="out",
                expected="sparse=False",
                got="sparse=True",
            )
        filling = Filling(check_out(options.out, self.name), options.progress, self.name)

        def read(filled: np.ndarray) -> Any:
            if options.nonfinite == "raise":
                self._check_finite(filled, call)
            return filled if options.out is not None else self._export(filled, call)

        try:
            return self._fill(call, filling, read)
        except WireError as error:
            if error.kind != "not-acceptable" or options.out is not None:
                raise
            # Several arrays do not come in blocks: then there is no bar, and the answer comes whole.
            return self._perform(call, lambda answer: self._export_matrix(answer, call))

    def jvp(self, primals: Any, tangents: Any, argnums: Argnums | None = None, **kwargs: Any) -> Any:
        """``(value, tangent_out)``; stack dimensions of the tangents stand in front of tangent_out too.

        ``tangents`` takes the form of ``argnums``: an int, one tangent; a sequence, a tuple in
        that order; None, one for each differentiable argument, bare when ``primals`` is.
        """
        return self._jvp(primals, tangents, argnums, kwargs)

    def _jvp(
        self,
        primals: Any,
        tangents: Any,
        argnums: Argnums | None,
        kwargs: Mapping[str, Any],
        has_aux: bool = False,
    ) -> Any:
        args, bare = self._primals(primals, argnums)
        call = self._call("jvp", args, kwargs, argnums=argnums, default=None, vectors=(tangents,))
        split = self._split(tangents, call, bare, name="tangents")
        call = replace(call, tangents=split, has_aux=has_aux)

        def read(answer: Answer) -> Any:
            fields = ("value", "tangent", "aux") if has_aux else ("value", "tangent")
            return tuple(self._export(answer(name), call) for name in fields)

        return self._perform(call, read)

    def vjp(self, primals: Any, cotangent: Any, argnums: Argnums | None = None, **kwargs: Any) -> Any:
        """``(value, cotangents)``; the cotangents take the form of ``argnums``, as `jvp`'s tangents do."""
        args, bare = self._primals(primals, argnums)
        call = self._call("vjp", args, kwargs, argnums=argnums, default=None, vectors=(cotangent,))
        call = replace(call, cotangent=self._imported(cotangent, "cotangent"))

        def read(answer: Answer) -> Any:
            cotangents = self._export(tuple(answer("cotangents")), call)
            return self._export(answer("value"), call), cotangents[0] if bare else cotangents

        return self._perform(call, read)

    def grad(self, *args: Any, argnums: Argnums = 0, holomorphic: bool = False, **kwargs: Any) -> Any:
        """The gradient of a scalar map. Complex as in JAX: for C→R, descend along ``-conj(g)``."""
        call = self._call("grad", args, kwargs, argnums=argnums)
        call = replace(call, holomorphic=holomorphic)
        return self._perform(call, lambda answer: self._export(answer("gradient"), call))

    def value_and_grad(
        self, *args: Any, argnums: Argnums = 0, holomorphic: bool = False, **kwargs: Any
    ) -> Any:
        """``(value, gradient)`` of a scalar map, in one evaluation."""
        call = self._call("value_and_grad", args, kwargs, argnums=argnums)
        call = replace(call, holomorphic=holomorphic)
        return self._perform(
            call, lambda answer: (self._export(answer("value"), call), self._export(answer("gradient"), call))
        )

    def hessian(self, *args: Any, argnums: Argnums = 0, sparse: bool = False, **kwargs: Any) -> Any:
        """The Hessian, of shape ``value.shape + argument.shape + argument.shape`` (vector maps too).

        With ``sparse=True``, of scalar maps: a ``scipy.sparse.csr_array`` of shape (argument.size,
        argument.size), for several arguments one for each pair of them.
        """
        call = self._call("hessian", args, kwargs, argnums=argnums)
        call = replace(call, sparse=sparse)
        return self._perform(call, lambda answer: self._export_matrix(answer, call))

    def hvp(self, primals: Any, tangents: Any, argnums: Argnums | None = None, **kwargs: Any) -> Any:
        """The Hessian of a scalar map times tangents (stacks too), in the form of ``argnums``."""
        args, bare = self._primals(primals, argnums)
        call = self._call("hvp", args, kwargs, argnums=argnums, default=None, vectors=(tangents,))
        positions = self._positions(call)
        split = self._split(tangents, call, bare, name="tangents")
        call = replace(call, tangents=split, argnums=positions[0] if bare else positions)
        return self._perform(call, lambda answer: self._export(answer("product"), call))

    def linearize(self, *args: Any, argnums: Argnums | None = None, **kwargs: Any) -> LinearOperator:
        """The derivative at this point as a `LinearOperator`: many products, one evaluation."""
        operator: LinearOperator = self._linearize(
            args, argnums, kwargs, lambda operator, answer, call: operator
        )
        return operator

    def _linearize(
        self,
        args: tuple[Any, ...],
        argnums: Argnums | None,
        kwargs: Mapping[str, Any],
        read: Callable[[LinearOperator, Answer, Call], T],
        has_aux: bool = False,
    ) -> T:
        call = self._call("linearize", args, kwargs, argnums=argnums, default=None)
        positions = self._positions(call)
        bare = is_position(argnums) or (argnums is None and len(positions) == 1)
        call = replace(call, has_aux=has_aux, argnums=positions[0] if bare else positions)

        def made(answer: Answer) -> T:
            value = answer("value")
            operator = Jacobian(
                self._handle(call, answer),
                value=self._export(value, call),
                inputs=Space.of([call.args[position] for position in positions], bare=bare),
                outputs=Space.of([value], bare=True),
                like=call.like,
                map=self.name,
            )
            return read(operator, answer, call)

        return self._perform(call, made)

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """Shapes and dtypes of the value, as `ArraySpec` leaves; nothing is computed.

        Arguments may be arrays, or anything with a ``shape`` and a ``dtype``.
        """
        call = self._call("eval_shape", args, kwargs)
        return self._perform(call, lambda answer: answer("shapes"))

    # What it says of itself.

    def check(self, *args: Any, **kwargs: Any) -> CheckReport:
        """Whether its derivatives are right at these arguments: Taylor, adjoint and agreement tests.

        They run where the map is. The report prints as a table; ``report.ok`` is the verdict.
        """
        report: CheckReport = self._report("check", args, kwargs)
        return report

    def cost(self, *args: Any, argnums: Argnums | None = None, **kwargs: Any) -> CostReport:
        """What each operation takes at arguments of these shapes (arrays, or `ArraySpec`).

        Floating operations, bytes and memory, as the compiler knows them before anything runs;
        of the derivatives in ``argnums``, or in every argument that has one.
        """
        report: CostReport = self._report("cost", args, kwargs, argnums)
        return report

    def explain(self, *args: Any, argnums: Argnums | None = None, **kwargs: Any) -> Explanation:
        """Which device, precision, mode and block size these shapes would get, and why."""
        report: Explanation = self._report("explain", args, kwargs, argnums)
        return report

    def _report(
        self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], argnums: Argnums | None = None
    ) -> Any:
        call = self._call(name, args, kwargs)
        if argnums is not None:
            positions = self.signature.differentiated(argnums, call.args, map=self.name)
            call = replace(call, argnums=positions[0] if is_position(argnums) else positions)
        return self._perform(call, lambda answer: REPORTS[name].from_fields(answer("report")))

    # From what a caller wrote to a call.

    def _primals(self, primals: Any, argnums: Argnums | None) -> tuple[tuple[Any, ...], bool]:
        """The arguments in ``primals``, and whether (co)tangents are written bare."""
        args = primals if type(primals) is tuple else (primals,)
        bare = is_position(argnums) or (argnums is None and type(primals) is not tuple)
        return args, bare

    def _call(
        self,
        operation: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        argnums: Argnums | None = None,
        default: int | None = 0,
        vectors: tuple[Any, ...] = (),
    ) -> Call:
        self.signature.bind(args, kwargs, map=self.name)
        arrays: list[Any] = []

        def imported(parameter: Any, value: Any) -> Any:
            if parameter.static:
                return static_value(value, argument=parameter.name, map=self.name)
            tree = normalized(value, argument=parameter.name)
            found = list(leaves(tree))
            if operation not in BY_SHAPE:
                kinds.refuse_dask(found, operation)
            arrays.extend(found)
            as_leaf = spec_of if operation in BY_SHAPE else self._import_leaf
            return tree_map(lambda leaf: as_leaf(leaf, parameter.name), tree)

        try:
            bound_args = tuple(imported(self.signature.at(i), arg) for i, arg in enumerate(args))
            bound_kwargs = {
                key: imported(replace(self.signature.named(key), name=key), value)  # type: ignore[type-var]
                for key, value in kwargs.items()
            }
        except GradwireError as error:
            error.map = error.map or self.name
            raise
        arrays.extend(leaves(vectors))
        if vectors:
            kinds.refuse_dask(arrays, operation)
        deciding = (leaf._like if isinstance(leaf, ResidentArray) else leaf for leaf in arrays)
        like = kinds.leading(deciding)
        if operation in ("evaluate", "eval_shape", *REPORTS):
            return Call(operation, bound_args, bound_kwargs, like=like)
        wanted: int | tuple[int, ...] | None = None
        if argnums is not None or default is not None:
            try:
                wanted = checked_argnums(default if argnums is None else argnums)
            except GradwireError as error:
                error.map = self.name
                raise
        found = self.signature.differentiated(wanted, bound_args, map=self.name)
        named = found[0] if isinstance(wanted, int) else found
        return Call(operation, bound_args, bound_kwargs, named, like=like)

    def _positions(self, call: Call) -> tuple[int, ...]:
        assert call.argnums is not None
        return (call.argnums,) if isinstance(call.argnums, int) else call.argnums

    def _imported(self, tree: Any, argument: str) -> Tree:
        try:
            return tree_map(
                lambda leaf: self._import_leaf(leaf, argument), normalized(tree, argument=argument)
            )
        except GradwireError as error:
            error.map = error.map or self.name
            raise

    def _split(self, vectors: Any, call: Call, bare: bool, *, name: str) -> tuple[Tree, ...]:
        """Tangents as a caller wrote them, one for each differentiated argument."""
        positions = self._positions(call)
        if bare:
            return (self._imported(vectors, name),)
        if type(vectors) is not tuple or len(vectors) != len(positions):
            raise ArgumentError(
                f"{name} is a tuple with one entry for each differentiated argument "
                f"({', '.join(self.signature.at(position).name for position in positions)}).",
                map=self.name,
                argument=name,
                expected=f"a tuple of {len(positions)}",
                got=f"a tuple of {len(vectors)}" if type(vectors) is tuple else type(vectors).__name__,
            )
        return tuple(self._imported(vector, name) for vector in vectors)

    # From the answer to what the caller gets.

    def _export_matrix(self, answer: Answer, call: Call) -> Any:
        """A Jacobian or Hessian; sparse ones are SciPy's, whatever the caller's arrays are."""
        if not call.sparse:
            return self._export(answer(call.operation), call)
        scipy_sparse()
        reason = answer("meta").get("dense_fallback")
        if reason is not None:
            warnings.warn(
                f"No sparsity pattern of {self.name} was found ({reason}): the answer is right, but every "
                "column of the matrix was computed. Ask without sparse, or silence "
                "gradwire.DenseFallbackWarning.",
                DenseFallbackWarning,
                stacklevel=_callers_level(),
            )
        matrices = answer(call.operation)
        if self._options.nonfinite == "raise":
            self._check_finite(matrices, call)
        return tree_map(Csr.to_scipy, matrices)

    def _export(self, tree: Tree, call: Call) -> Any:
        kind, like = call.like
        if self._options.nonfinite == "raise":
            self._check_finite(tree, call)
        return tree_map(lambda leaf: self._export_leaf(leaf, kind, like), tree)

    def _check_finite(self, tree: Tree, call: Call) -> None:
        """Refuse an answer with NaN or infinities, saying where the first one is."""
        for number, leaf in enumerate(leaves(tree)):
            array = leaf.values if isinstance(leaf, Csr) else np.asarray(leaf)
            if not is_inexact(array.dtype):
                continue
            bad = ~np.isfinite(array)
            if bad.any():
                where = tuple(int(i) for i in np.argwhere(bad)[0])
                if isinstance(leaf, Csr):
                    where = leaf.place(where[0])
                raise MapFailed(
                    f"{call.operation} of {self.name} gave {int(bad.sum())} entries that are not finite, "
                    f"the first at {where} of array {number} of the answer.",
                    map=self.name,
                    expected="finite numbers (nonfinite='raise')",
                    got=f"{int(np.isnan(array).sum())} NaN, {int(np.isinf(array).sum())} infinite",
                )

    def _warn_of_precision(self, call: Call, computed_in: str, warned: set[str]) -> None:
        """Say once per map that computation ran below the input's precision."""
        if self.name in warned:
            return
        warned.add(self.name)
        widest = max(
            (
                np.dtype(leaf.dtype)
                for leaf in leaves((call.args, call.kwargs))
                if not is_number(leaf) and is_inexact(leaf.dtype)
            ),
            key=lambda dtype: np.finfo(dtype).bits if dtype.kind in "fc" else 16,
            default=np.dtype("float64"),
        )
        warnings.warn(
            f"{self.name} was computed in {computed_in}, below the {widest.name} it was given. "
            f'Ask for more with using(precision="{widest.name}"), or silence gradwire.PrecisionWarning.',
            PrecisionWarning,
            stacklevel=_callers_level(),
        )


def _callers_level() -> int:
    """The ``stacklevel`` with which the function that asks warns at the line of whoever uses Gradwire."""
    frame, level = sys._getframe(1), 1
    ours = ("gradwire.", "gradwire_service.")
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(ours):
        frame, level = frame.f_back, level + 1
    return level


def import_leaf(leaf: Any, argument: str) -> Any:
    """A caller's leaf as a host array, a Python number, a spec, or something kept on the service.

    Raises:
        ArgumentError: neither an array nor a number.
        DTypeError: an array of a dtype that is not carried, an integer beyond 64 bit.
    """
    if type(leaf) is int and not -(2**63) <= leaf < 2**63:
        raise DTypeError(
            "An integer alone is an int64; give a larger one as an array of uint64.",
            argument=argument,
            expected="an integer that fits in int64",
            got="a larger one",
        )
    if is_number(leaf) or isinstance(leaf, Bare | ArraySpec | ResidentArray):
        return leaf
    kind = kinds.kind_of(leaf)
    if kind is None:
        raise ArgumentError(
            "Arguments are arrays, numbers, and pytrees of these (plain data where static_argnames says so).",
            argument=argument,
            expected="an array or a number",
            got=type(leaf).__name__,
        )
    try:
        return kind.to_numpy(leaf)
    except GradwireError as error:
        error.argument = argument
        raise


def spec_of(leaf: Any, argument: str) -> Any:
    """A leaf of `eval_shape`'s arguments: numbers as they are, arrays without their data."""
    if is_number(leaf) or isinstance(leaf, ArraySpec):
        return leaf
    if kinds.kind_of(leaf) is None and hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
        return ArraySpec(tuple(int(n) for n in leaf.shape), np.dtype(leaf.dtype))
    array = import_leaf(leaf, argument)
    return ArraySpec(array.shape, array.dtype)
