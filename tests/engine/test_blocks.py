"""Large Jacobians in blocks: right, in bounded memory, and only as long as somebody reads."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import jax
import jax.numpy as jnp
import msgpack
import numpy as np
import pytest

from engine.hosting import PATIENCE, Gate, Live, forget_peak, live, resident_memory
from gradwire import wire
from gradwire_service import Map
from gradwire_service.engine.blocks import ROWS, Blocks
from service.running import Running

BLOCKS = "application/vnd.gradwire.blocks+msgpack"
MIB = 1 << 20


def neighbours(x: Any) -> Any:
    return jnp.sin(x) * jnp.roll(x, 1)


def narrowed(x: Any) -> Any:
    return neighbours(x)[: x.shape[0] // 3]


def widened(x: Any) -> Any:
    return jnp.concatenate([neighbours(x), x**2, jnp.cos(x)])


@Map
def looped(x):
    """Forward mode alone."""
    return jax.lax.while_loop(lambda c: jnp.max(jnp.abs(c)) > 10, lambda c: c / 2, x) * jnp.ones(2)[:, None]


@jax.custom_vjp
def _clipped(x: Any) -> Any:
    return jnp.clip(x, -1, 1)


_clipped.defvjp(lambda x: (_clipped(x), x), lambda x, w: (jnp.where(jnp.abs(x) < 1, w, 0.0 * w),))

MAPS = {
    "neighbours": Map(neighbours, name="neighbours"),
    "narrowed": Map(narrowed, name="narrowed"),
    "widened": Map(widened, name="widened"),
    "looped": looped,
    "reversed": Map(lambda x: _clipped(x)[:300], name="reversed"),
    "spectrum": Map(lambda x: jnp.fft.fft(x), name="spectrum"),
    "power": Map(lambda z: jnp.abs(z) ** 2, name="power"),
    "square": Map(lambda z: z * jnp.roll(z, 1), name="square"),
    "mixed": Map(lambda z: jnp.conj(z), name="mixed"),
    "pair": Map(lambda x: {"a": x, "b": x}, name="pair"),
    "matrix": Map(lambda x: x @ x.T, name="matrix"),
}


class Countdown:
    """A map whose derivative fails at, or tells of, each block that is computed."""

    def __init__(self, fails_at: int = 1 << 30) -> None:
        self.computed = 0
        self.fails_at = fails_at

    def map(self, name: str = "ticking") -> Map:
        def tick(dx: Any) -> np.ndarray:
            self.computed += 1
            if self.computed == self.fails_at:
                raise ValueError("no more")
            return np.asarray(dx)

        @jax.custom_jvp
        def ticking(x: Any) -> Any:
            return x * 2

        @ticking.defjvp
        def _(primals: Any, tangents: Any) -> Any:
            (x,), (dx,) = primals, tangents
            spec = jax.ShapeDtypeStruct(dx.shape, dx.dtype)
            return x * 2, 2 * jax.pure_callback(tick, spec, dx, vmap_method="broadcast_all")

        return Map(lambda x: ticking(x), name=name)


@pytest.fixture(scope="module")
def lab() -> Iterator[Live]:
    with live(*MAPS.values()) as lab:
        yield lab


@contextmanager
def asked(lab: Live | Running, path: str, fields: dict[str, Any], **headers: str) -> Iterator[httpx.Response]:
    body = b"".join(bytes(part) for part in wire.MSGPACK.encode(fields, "str"))
    named = {"content-type": "application/msgpack", "accept": BLOCKS, **headers}
    with httpx.stream("POST", f"{lab.url}{path}", content=body, headers=named, timeout=PATIENCE) as answer:
        yield answer


def messages(answer: httpx.Response) -> Iterator[dict[str, Any]]:
    unpacker = msgpack.Unpacker(max_buffer_size=1 << 30)
    for piece in answer.iter_raw():
        unpacker.feed(piece)
        yield from unpacker


def jacobian_of(parts: list[dict[str, Any]], rows: int, columns: int) -> np.ndarray:
    """What the messages of a whole stream say together, each row or column exactly once."""
    head, *blocks, tail = parts
    assert head["jacobian"]["shape"]
    dtype = np.dtype(head["jacobian"]["type"])
    assert tail["meta"]["device"] == "cpu:0"
    made, written = np.zeros((rows, columns), dtype), np.zeros((rows, columns), int)
    for message in blocks:
        block = message["block"]
        assert np.dtype(block["type"]) == dtype
        array = np.frombuffer(block["data"], dtype).reshape(block["shape"])
        start = message["start"]
        count = array.shape[0 if message["axis"] == "rows" else 1]
        assert count <= ROWS
        place = np.s_[start : start + count] if message["axis"] == "rows" else np.s_[:, start : start + count]
        made[place] = array
        written[place] += 1
    assert (written == 1).all()
    return made.reshape(head["jacobian"]["shape"])


def taken(lab: Live, map: str, x: np.ndarray, **fields: Any) -> tuple[np.ndarray, set[str]]:
    with asked(lab, f"/v1/maps/{map}/jacobian", {"args": [wire.Tree(x)], **fields}) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"] == BLOCKS
        parts = list(messages(answer))
    shape = parts[0]["jacobian"]["shape"]
    made = jacobian_of(parts, int(np.prod(shape[: len(shape) - x.ndim])), x.size)
    return made, {part["axis"] for part in parts if "axis" in part}


def refused(lab: Live, path: str, fields: dict[str, Any], **headers: str) -> tuple[int, str]:
    with asked(lab, path, fields, **headers) as answer:
        problem = msgpack.unpackb(answer.read())
        assert answer.headers["content-type"] == "application/problem+msgpack"
        return answer.status_code, problem["type"].removeprefix("urn:gradwire:")


@pytest.mark.parametrize(
    ("map", "n", "axis", "dtype"),
    [
        ("neighbours", 600, "columns", "float64"),  # 256, 256 and 88
        ("neighbours", 512, "columns", "float32"),
        ("narrowed", 900, "rows", "float64"),
        ("narrowed", 300, "rows", "float32"),
        ("widened", 257, "columns", "float64"),
        ("neighbours", 1, "columns", "float64"),
    ],
)
def test_the_blocks_make_jaxs_jacobian(lab: Live, map: str, n: int, axis: str, dtype: str) -> None:
    x = np.linspace(0.1, 1, n).astype(dtype)
    made, axes = taken(lab, map, x)
    with jax.enable_x64(dtype == "float64"):
        expected = np.asarray(jax.jacobian(MAPS[map]._declaration.fun)(x))
    assert axes == {axis}
    assert made.dtype == dtype
    np.testing.assert_allclose(made, expected, rtol=1e-5 if dtype == "float32" else 1e-12, atol=1e-6)


@pytest.mark.parametrize(("mode", "axis"), [("fwd", "columns"), ("rev", "rows")])
@pytest.mark.parametrize("map", ["narrowed", "widened"])
def test_a_mode_decides_between_rows_and_columns(lab: Live, map: str, mode: str, axis: str) -> None:
    x = np.linspace(0.1, 1, 270)
    made, axes = taken(lab, map, x, mode=mode)
    assert axes == {axis}
    with jax.enable_x64(True):
        np.testing.assert_allclose(made, jax.jacfwd(MAPS[map]._declaration.fun)(x), atol=1e-12)


def test_arguments_and_values_may_have_any_shape(lab: Live) -> None:
    x = np.random.default_rng(0).standard_normal((18, 16))
    made, _ = taken(lab, "matrix", x)
    assert made.shape == (18, 18, 18, 16)
    with jax.enable_x64(True):
        np.testing.assert_allclose(made, jax.jacfwd(lambda x: x @ x.T)(x), atol=1e-12)


def test_a_map_with_one_mode_is_taken_by_that_one(lab: Live) -> None:
    x = np.linspace(-2, 2, 300)
    made, axes = taken(lab, "looped", x)
    assert axes == {"columns"}
    assert np.array_equal(made, np.stack([np.eye(300)] * 2))
    status, kind = refused(lab, "/v1/maps/looped/jacobian", {"args": [wire.Tree(x)], "mode": "rev"})
    assert (status, kind) == (422, "not-differentiable")


def test_complex_maps_follow_jaxs_rules(lab: Live) -> None:
    x = np.linspace(0.1, 1, 300)
    made, axes = taken(lab, "spectrum", x)
    assert (axes, made.dtype) == ({"columns"}, np.dtype("c16"))
    np.testing.assert_allclose(made, np.fft.fft(np.eye(300)), atol=1e-10)

    z = x + 1j * x[::-1]
    made, axes = taken(lab, "power", z)
    assert (axes, made.dtype) == ({"rows"}, np.dtype("c16"))
    np.testing.assert_allclose(made, np.diag(2 * z.conj()), atol=1e-12)

    made, _ = taken(lab, "square", z, holomorphic=True)
    with jax.enable_x64(True):
        square = MAPS["square"]._declaration.fun
        np.testing.assert_allclose(made, jax.jacfwd(square, holomorphic=True)(z), atol=1e-12)

    for map, fields in {"square": {}, "spectrum": {"mode": "rev"}, "power": {"mode": "fwd"}}.items():
        argument = x if map == "spectrum" else z
        status, kind = refused(lab, f"/v1/maps/{map}/jacobian", {"args": [wire.Tree(argument)], **fields})
        assert (status, kind) == (422, "not-differentiable"), map


@pytest.mark.parametrize(
    ("map", "arg", "fields", "expected"),
    [
        ("pair", np.ones(3), {}, (406, "not-acceptable")),
        ("neighbours", {"a": np.ones(3)}, {}, (422, "map-failed")),
        ("neighbours", np.ones(3), {"argnums": {"tuple": [0]}}, (406, "not-acceptable")),
        ("neighbours", np.ones(3), {"argnums": 4}, (422, "arguments")),
        ("neighbours", np.ones(3, int), {}, (422, "not-differentiable")),
        ("neighbours", np.ones(3), {"unheard_of": 1}, (400, "malformed")),
        ("nobody", np.ones(3), {}, (404, "map-not-found")),
    ],
)
def test_what_is_wrong_from_the_beginning_is_a_plain_problem(
    lab: Live, map: str, arg: Any, fields: dict[str, Any], expected: tuple[int, str]
) -> None:
    assert refused(lab, f"/v1/maps/{map}/jacobian", {"args": [wire.Tree(arg)], **fields}) == expected


def test_a_linearizations_matrix_comes_in_blocks_too(lab: Live) -> None:
    x = np.linspace(0.1, 1, 300)

    def linearized(map: str, x: np.ndarray) -> str:
        fields = {"args": [wire.Tree(x)], "argnums": 0}
        with asked(lab, f"/v1/maps/{map}/linearize", fields, accept="application/msgpack") as answer:
            return str(msgpack.unpackb(answer.read())["linearization"]["id"])

    with asked(lab, f"/v1/linearizations/{linearized('widened', x)}/dense", {}) as answer:
        made = jacobian_of(list(messages(answer)), 900, 300)
    with jax.enable_x64(True):
        np.testing.assert_allclose(made, jax.jacfwd(widened)(x), atol=1e-12)
    lost = refused(lab, "/v1/linearizations/unknown/dense", {})
    assert lost == (410, "gone")
    z = x + 1j
    not_linear = refused(lab, f"/v1/linearizations/{linearized('mixed', z)}/dense", {})
    assert not_linear == (422, "not-differentiable")


def test_an_error_in_the_middle_is_the_last_message(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(
        "CRITICAL", "jax._src.callback"
    )  # a captured record would hold frames, and they the block
    countdown = Countdown(fails_at=3)
    with live(countdown.map()) as lab:
        with asked(lab, "/v1/maps/ticking/jacobian", {"args": [wire.Tree(np.ones(1500))]}) as answer:
            assert answer.status_code == 200
            *good, last = messages(answer)
        assert [message.get("start") for message in good] == [None, 0, 256]
        assert last["problem"]["type"] == "urn:gradwire:map-failed"
        assert "no more" in last["problem"]["detail"]
        assert last["problem"]["instance"].endswith(answer.headers["x-request-id"])
        assert_ends(lab)


def assert_ends(lab: Live) -> None:
    """Nothing of a Jacobian in blocks is left: neither work nor memory."""
    end = time.monotonic() + PATIENCE
    (device,) = lab.service.engine.devices
    while device.queued or any(type(thing) is Blocks for thing in gc.get_objects()):
        assert time.monotonic() < end
        time.sleep(0.02)
        gc.collect()


def test_nothing_is_computed_for_a_reader_that_has_gone() -> None:
    countdown = Countdown()
    with live(countdown.map()) as lab:
        # 16 blocks of 8 MiB: more than fits into the buffers in between.
        with asked(lab, "/v1/maps/ticking/jacobian", {"args": [wire.Tree(np.ones(4096))]}) as answer:
            read = messages(answer)
            next(read), next(read)
        assert_ends(lab)
        assert countdown.computed < 10


def test_a_timeout_that_passes_ends_the_stream() -> None:
    gate = Gate()
    calls = threading.Event()

    @jax.custom_jvp
    def waiting(x: Any) -> Any:
        return x

    @waiting.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        calls.set()
        (x,), (dx,) = primals, tangents
        spec = jax.ShapeDtypeStruct(dx.shape, dx.dtype)
        return x, jax.pure_callback(gate.pass_through, spec, dx, vmap_method="broadcast_all")

    with live(Map(lambda x: waiting(x), name="waiting")) as lab:
        fields = {"args": [wire.Tree(np.ones(600))]}
        # Compiled, so that only the first block takes longer than the caller has.
        gate.opened.set()
        with asked(lab, "/v1/maps/waiting/jacobian", fields) as answer:
            assert "meta" in list(messages(answer))[-1]
        gate.opened.clear()
        headers = {"Gradwire-Timeout": "0.5"}
        with asked(lab, "/v1/maps/waiting/jacobian", fields, **headers) as answer:
            said = list(messages(answer))[-1]
        gate.opened.set()
        problem = said.get("problem", said)
        assert problem["type"] == "urn:gradwire:deadline"
        assert_ends(lab)


def test_the_service_holds_a_few_blocks_and_never_the_jacobian(served: Running) -> None:
    n = 8192  # 256 MiB in float32
    fields = {"args": [wire.Tree(np.linspace(0, 1, n, dtype="float32"))]}
    forget_peak(served.process.pid)
    before = resident_memory(served.process.pid)
    with asked(served, "/v1/maps/neighbours/jacobian", fields) as answer:
        assert sum(len(piece) for piece in answer.iter_raw()) > n * n * 4
    assert resident_memory(served.process.pid, "VmHWM") - before < 128 * MIB
