"""Arrays kept on the service."""

from __future__ import annotations

import hashlib
import pickle
from typing import Any

import msgpack
import numpy as np
import pytest

from gradwire import _errors as errors
from gradwire import wire
from gradwire._service import connect

X = np.arange(6.0).reshape(2, 3)


@pytest.fixture
def held(server: Any) -> dict[str, bytes]:
    """The arrays that ``server`` holds, by name; it answers maps that refer to them."""
    arrays: dict[str, bytes] = {}

    def gone(*missing: str) -> Any:
        problem = {"type": "urn:gradwire:gone", "detail": "Not held.", "missing": list(missing)}
        return server.Reply(410, problem, kind="application/problem+msgpack")

    def respond(request: Any) -> Any:
        name = request.path.rpartition("/")[2]
        if request.method == "PUT":
            assert hashlib.sha256(request.body).hexdigest() == name
            known = name in arrays
            arrays[name] = request.body
            return server.Reply(200 if known else 201)
        if request.method == "POST":
            wanted = [arg["ref"] for arg in request.fields["args"]]
            missing = [ref for ref in wanted if ref not in arrays]
            return gone(*missing) if missing else server.Reply(fields={"value": len(wanted)})
        if name not in arrays:
            return gone(name)
        if request.method == "DELETE":
            del arrays[name]
            return server.Reply(204)
        return server.Reply(raw=arrays[name])

    server.respond = respond
    return arrays


def use(lab: Any, *residents: Any) -> Any:
    args = wire.Tree([resident.ref for resident in residents])
    return lab.request("POST", "/v1/maps/f/evaluate", {"args": args}).fields["value"]


def test_an_array_is_put_named_and_forgotten(server: Any, held: dict[str, bytes]) -> None:
    with connect(server.url) as lab:
        with lab.put(X) as resident:
            assert (resident.shape, resident.dtype, resident.ndim) == ((2, 3), np.dtype("f8"), 2)
            assert resident.sha256 == wire.sha256(X)
            assert msgpack.unpackb(held[resident.sha256])["shape"] == [2, 3]
            assert use(lab, resident) == 1
            assert resident.sha256[:12] in repr(resident)
        assert held == {}
        resident.close()
        with pytest.raises(ValueError, match="closed"):
            resident.ref  # noqa: B018
        with pytest.raises(ValueError, match="closed"):
            resident.get()


def test_get_gives_fresh_arrays(server: Any, held: dict[str, bytes]) -> None:
    mine = X.copy()
    with connect(server.url) as lab, lab.put(mine) as resident:
        mine[:] = -1.0
        first = resident.get()
        assert np.array_equal(first, X)
        first[:] = -2.0
        assert np.array_equal(resident.get(), X)


def test_lost_arrays_are_put_again(server: Any, held: dict[str, bytes]) -> None:
    mine = X.copy()
    with connect(server.url) as lab, lab.put(mine) as a, lab.put(np.float32(2.0)) as b:
        mine[:] = -1.0
        held.clear()
        assert use(lab.using(timeout=5.0), a, b) == 2
        assert set(held) == {a.sha256, b.sha256}


def test_arrays_that_stay_lost_are_given_up(server: Any, held: dict[str, bytes]) -> None:
    with connect(server.url) as lab:
        resident = lab.put(X)
        server.problem(410, "gone", missing=[resident.sha256])
        server.says(201)
        server.problem(410, "gone", missing=[resident.sha256])
        with pytest.raises(errors.LinearizationLost):
            use(lab, resident)


@pytest.mark.parametrize("missing", [["0" * 64], [], "abc", None, [3]])
def test_what_the_client_never_had_it_cannot_put_again(server: Any, missing: Any) -> None:
    server.problem(410, "gone", missing=missing)
    with connect(server.url) as lab, pytest.raises(errors.LinearizationLost):
        lab.request("POST", "/v1/linearizations/abc/jvp", {})
    assert len(server.requests) == 1


def test_equal_contents_are_held_until_the_last_is_closed(server: Any, held: dict[str, bytes]) -> None:
    with connect(server.url) as lab:
        first, second = lab.put(X), lab.put(X.copy(order="F"))
        assert first.sha256 == second.sha256
        first.close()
        assert set(held) == {second.sha256}
        held.clear()
        assert use(lab, second) == 1
        second.close()
        assert held == {}


def test_closing_what_the_service_has_lost_is_no_error(server: Any, held: dict[str, bytes]) -> None:
    with connect(server.url) as lab, lab.put(X):
        held.clear()
    assert [request.method for request in server.requests] == ["PUT", "DELETE"]


def test_a_pickled_one_carries_no_data(server: Any, held: dict[str, bytes]) -> None:
    big = np.zeros(1 << 16)
    with connect(server.url) as lab, lab.put(big) as resident:
        packed = pickle.dumps(resident)
        assert len(packed) < 4096
        copy = pickle.loads(packed)
        assert np.array_equal(copy.get(), big)
        assert copy.get().flags.writeable
        held.clear()
        with pytest.raises(errors.LinearizationLost):
            copy.get()


def test_lists_of_numbers_and_strided_arrays_are_arrays(server: Any, held: dict[str, bytes]) -> None:
    with connect(server.url) as lab:
        assert lab.put([[1, 2], [3, 4]]).dtype == np.int64
        strided = np.arange(10.0)[::-2]
        assert np.array_equal(lab.put(strided).get(), strided)
        swapped = np.arange(3.0).astype(">f8")
        assert np.array_equal(lab.put(swapped).get(), swapped)


@pytest.mark.parametrize("wrong", [None, 2.0, "text", {"a": X}, (X, X)])
def test_only_an_array_can_be_put(server: Any, wrong: Any) -> None:
    with connect(server.url) as lab, pytest.raises(errors.ArgumentError):
        lab.put(wrong)
    assert server.requests == []


def test_dtypes_that_cannot_be_sent_are_refused(server: Any) -> None:
    with connect(server.url) as lab, pytest.raises(errors.DTypeError):
        lab.put(np.array(["a"]))
    assert server.requests == []


def test_other_kinds_come_back_in_kind(server: Any, held: dict[str, bytes]) -> None:
    import jax

    x = jax.numpy.arange(3)
    with connect(server.url) as lab, lab.put(x) as resident:
        back = resident.get()
        assert isinstance(back, jax.Array)
        assert (back.tolist(), back.dtype, back.devices()) == ([0, 1, 2], x.dtype, x.devices())
