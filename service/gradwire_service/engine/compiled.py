"""Compiled queries: from a query and the shapes of its arrays to an executable, kept in a bounded LRU."""

from __future__ import annotations

import itertools
import math
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gradwire._errors import AnswerTooLarge, GradwireError, MapFailed, OutOfMemory
from gradwire._trees import is_number
from gradwire.wire import ArraySpec
from gradwire_service.differentiation import OPERATIONS, Inputs, transformed, translated
from gradwire_service.engine.devices import Device
from gradwire_service.failures import shown
from gradwire_service.policy import Precision
from gradwire_service.query import Asked

_generations = itertools.count()


@contextmanager
def at(precision: Precision) -> Iterator[None]:
    """JAX's settings for ``precision``, in this thread. Never held across an ``await``."""
    with jax.enable_x64(precision.x64), jax.default_matmul_precision(precision.matmul):
        yield


class Compiled:
    """One executable: made once, run many times.

    Attributes:
        generation: a number no other executable of this process has.
        shapes: the pytree of what it gives, as ShapeDtypeStructs.
        memory: bytes on the device while it runs: arguments, temporaries and answer.
        code: bytes of its code.
    """

    def __init__(self, executable: Any, shapes: Any = None) -> None:
        self.executable = executable
        self.shapes = shapes
        self.generation = next(_generations)
        # A map with derivatives by hand is answered by a plain function.
        analysis = executable.memory_analysis() if hasattr(executable, "memory_analysis") else None
        self.memory = self.code = 0
        if analysis is not None:
            self.memory = (
                analysis.argument_size_in_bytes + analysis.output_size_in_bytes + analysis.temp_size_in_bytes
            )
            self.code = analysis.generated_code_size_in_bytes or _size_of_code(executable)


def function_of(asked: Asked) -> Callable[[Inputs], dict[str, Any]]:
    """The query as a pure function of its inputs."""
    query = asked.query
    fun = transformed(asked.declaration.bound(asked.statics), query.transforms)
    operation = OPERATIONS[query.operation]

    def run(inputs: Inputs) -> dict[str, Any]:
        return operation(fun, inputs, query.options)

    return run


def spec_of(leaf: Any, precision: Precision, sharding: Any = None) -> jax.ShapeDtypeStruct:
    """How an argument looks to the tracer: Python numbers are weakly typed."""
    if is_number(leaf):
        wide = precision.x64
        dtype = {
            bool: np.bool_,
            int: np.int64 if wide else np.int32,
            float: np.float64 if wide else np.float32,
            complex: np.complex128 if wide else np.complex64,
        }[type(leaf)]
        return jax.ShapeDtypeStruct((), dtype, weak_type=True, sharding=sharding)
    weak = bool(getattr(leaf, "weak_type", False))
    return jax.ShapeDtypeStruct(tuple(leaf.shape), leaf.dtype, weak_type=weak, sharding=sharding)


def _is_leaf(node: Any) -> bool:
    return isinstance(node, ArraySpec)


def specs_of(tree: Any, precision: Precision, sharding: Any = None) -> Any:
    return jax.tree_util.tree_map(lambda leaf: spec_of(leaf, precision, sharding), tree, is_leaf=_is_leaf)


def signature_key(tree: Any) -> Hashable:
    """What of the arrays an executable depends on: structure, shapes, dtypes, weak types."""
    leaves, structure = jax.tree_util.tree_flatten(tree, is_leaf=_is_leaf)
    described: list[Any] = []
    for leaf in leaves:
        if is_number(leaf):
            described.append(type(leaf))
        else:
            described.append((tuple(leaf.shape), leaf.dtype, bool(getattr(leaf, "weak_type", False))))
    return structure, tuple(described)


@contextmanager
def _told(map: str) -> Iterator[None]:
    """Every error in here as one of ours: the map's own as `MapFailed`, no such derivative, …."""
    try:
        yield
    except GradwireError as error:
        error.map = error.map or map
        raise
    except jax.errors.JaxRuntimeError as error:
        raise told_by_runtime(error, "the device", map) from error
    except Exception as error:
        ours = translated(error)
        ours.map = map
        raise ours from error


def traced(function: Callable[..., Any], specs: tuple[Any, ...], precision: Precision, map: str) -> Any:
    """``jax.jit(function)`` lowered for ``specs``: some derivatives turn out not to exist only then.

    Raises:
        GradwireError: the map's own exception as `MapFailed`; a derivative that does not exist.
    """
    with _told(map), at(precision):
        return jax.jit(function).lower(*specs)


def nbytes(shapes: Any) -> int:
    """Total bytes of a pytree of arrays or ShapeDtypeStructs."""
    return sum(
        math.prod(leaf.shape) * jnp.dtype(leaf.dtype).itemsize for leaf in jax.tree_util.tree_leaves(shapes)
    )


def told_by_runtime(error: Exception, device: str, map: str) -> GradwireError:
    """The error for what XLA says: no memory, or code of the map that ran on the host and raised."""
    text = str(error)
    if text.startswith("RESOURCE_EXHAUSTED"):
        return OutOfMemory(
            f"{device} has not enough memory for this query now.",
            map=map,
            got=shown(text.split("\n")[0][:200]),
        )
    return MapFailed(f"{map} failed while it ran: {_callback_error(text)}", map=map)


def _callback_error(text: str) -> str:
    """The exception of a host callback: the last ``Type: message`` of the traceback in JAX's message."""
    found = re.findall(
        r"^([A-Za-z_][\w.]*(?:Error|Exception|Warning|Interrupt|Exit)?): (.*)$", text, re.MULTILINE
    )
    return shown(": ".join(found[-1]) if found else text.split("\n")[0])


def check_answer(answer: Any, most: int | None, map: str) -> None:
    """Refuse an answer (arrays, or their shapes) of more than ``most`` bytes; residuals are not sent.

    Raises:
        AnswerTooLarge: with the size it would have, and the limit.
    """
    if isinstance(answer, dict):
        answer = {name: tree for name, tree in answer.items() if name != "linear"}
    size = nbytes(answer)
    for leaf in jax.tree_util.tree_leaves(answer):
        # No array of such dimensions can be made, even where one of them is zero.
        if math.prod(n for n in leaf.shape if n) * leaf.dtype.itemsize >= 1 << 62:
            raise AnswerTooLarge(
                "The answer has dimensions that no array can have.", map=map, got=str(leaf.shape)
            )
    if most is not None and size > most:
        raise AnswerTooLarge(
            "The answer would be larger than this service sends. Ask for products (jvp, vjp) or in parts.",
            map=map,
            expected=f"at most {most} bytes",
            got=f"{size} bytes",
        )


def compile(trace: Any, *, answer_bytes: int | None, memory: int | None, map: str) -> Compiled:
    """Compile what `traced` gave, unless its answer would be too large, or need too much memory.

    Raises:
        AnswerTooLarge: with the size it would have, and the limit. Nothing is computed.
    """
    check_answer(trace.out_info, answer_bytes, map)
    with _told(map):
        made = Compiled(trace.compile(), trace.out_info)
    if memory is not None and made.memory > memory:
        raise AnswerTooLarge(
            "The computation would need more memory than the device may use (option device_memory). "
            "Ask for products (jvp, vjp), for blocks, or for less at once.",
            map=map,
            expected=f"at most {memory} bytes",
            got=f"{made.memory} bytes",
        )
    return made


def _size_of_code(executable: Any) -> int:
    """Bytes of an executable's code where XLA does not count them (on the host): those it is kept in."""
    try:
        return len(executable.runtime_executable().serialize())
    except (AttributeError, RuntimeError, ValueError):
        return 0


class CompiledQueries:
    """A bounded LRU of executables. What is being compiled is compiled once, whoever else asks for it.

    JAX keeps what it traced in caches of its own, which know nothing of ours: they are
    cleared whenever as many executables were dropped as may be held (what is held stays).

    Args:
        most: executables held.
        most_bytes: bytes of code of all that are held.
    """

    def __init__(self, most: int, most_bytes: int = 1 << 30) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._dropped = 0
        self._held: OrderedDict[Hashable, Compiled] = OrderedDict()
        self._making: dict[Hashable, Future[Compiled]] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: Hashable) -> Compiled | None:
        with self._lock:
            found = self._held.get(key)
            if found is not None:
                self._held.move_to_end(key)
            return found

    def get_or_make(self, key: Hashable, make: Callable[[], Compiled]) -> Compiled:
        """The executable for ``key``; made here, or waited for where another thread makes it."""
        with self._lock:
            found = self._held.get(key)
            if found is not None:
                self._held.move_to_end(key)
                return found
            making = self._making.get(key)
            mine = making is None
            if making is None:
                making = self._making[key] = Future()
        if not mine:
            return making.result()
        try:
            made = make()
        except BaseException as error:
            with self._lock:
                del self._making[key]
            making.set_exception(error)
            raise
        with self._lock:
            self._held[key] = made
            clear = self._shrink()
            del self._making[key]
        making.set_result(made)
        if clear:
            jax.clear_caches()
        return made

    def _shrink(self) -> bool:
        """Drop the least recently used; whether it is time to clear JAX's own caches."""
        code = sum(compiled.code for compiled in self._held.values())
        while len(self._held) > self._most or (code > self._most_bytes and len(self._held) > 1):
            code -= self._held.popitem(last=False)[1].code
            self._dropped += 1
        if self._dropped < min(self._most, 64):
            return False
        self._dropped = 0
        return True


def give_callbacks_64_bits() -> None:
    """Let host callbacks of float64 maps have float64 arrays, in this process.

    XLA may call them from threads of its own. These know nothing of `at`, and JAX would narrow what it
    hands to a callback there. Whatever else computes here says its own setting.
    """
    jax.config.update("jax_enable_x64", True)


def keep_compiled_in(directory: Path) -> None:
    """Let JAX keep compiled code in ``directory``, so that a restart finds it."""
    directory.mkdir(parents=True, exist_ok=True)
    jax.config.update("jax_compilation_cache_dir", str(directory))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def compile_key(asked: Asked, device: Device) -> Hashable:
    return asked.query, device.name, asked.declaration, signature_key(asked.inputs)
