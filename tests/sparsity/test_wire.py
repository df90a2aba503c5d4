"""Sparse matrices on the wire: one form in msgpack and JSON, and patterns that go once."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Any

import httpx
import numpy as np
import pytest

import gradwire
from gradwire import wire
from gradwire._sparse import MOST_KNOWN, Patterns


class Noting(httpx.HTTPTransport):
    """Notes the messages of every request to a map."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[dict[str, Any]] = []
        self.answered: list[dict[str, Any]] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        body = b"".join(bytes(part) for part in request.stream)
        request.stream = httpx.ByteStream(body)
        response = super().handle_request(request)
        content = b"".join(response.stream)
        if request.method == "POST":
            self.asked.append(wire.MSGPACK.decode(body).fields)
            self.answered.append(wire.MSGPACK.decode(content).fields)
        return httpx.Response(
            response.status_code, headers=response.headers, stream=httpx.ByteStream(content)
        )


@pytest.fixture
def exchanges(url: str) -> Iterator[tuple[Noting, gradwire.Service]]:
    noting = Noting()
    with httpx.Client(transport=noting) as client:
        yield noting, gradwire.connect(url, http_client=client)


def post(url: str, path: str, fields: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    answer = httpx.post(url + path, json=fields)
    return answer.status_code, answer.json()


def test_the_form_in_json(url):
    status, answer = post(url, "/v1/maps/chain/jacobian", {"args": [[1.0, 2.0, 3.0]], "sparse": True})
    assert status == 200
    found = answer["jacobian"]
    pattern = found.pop("pattern")
    assert found == {
        "csr": True,
        "shape": [3, 3],
        "indptr": [0, 2, 5, 7],
        "indices": [0, 1, 0, 1, 2, 1, 2],
        "values": [-4.0, 3.0, 1.0, -8.0, 3.0, 1.0, -12.0],
    }
    assert "dense_fallback" not in answer["meta"]
    request = {"args": [[1.0, 1.0, 1.0]], "sparse": True, "known_patterns": [pattern, "0" * 64]}
    again = post(url, "/v1/maps/chain/jacobian", request)[1]["jacobian"]
    assert again == {"csr": True, "shape": [3, 3], "values": [-4, 3, 1, -4, 3, 1, -4], "pattern": pattern}


def test_a_pattern_is_named_by_the_hash_of_its_canonical_arrays(url):
    found = post(url, "/v1/maps/chain/jacobian", {"args": [[1.0, 2.0]], "sparse": True})[1]["jacobian"]
    digest = sha256()
    for numbers, dtype in ((found["shape"], "<i8"), (found["indptr"], "<i4"), (found["indices"], "<i4")):
        for piece in wire.canonical(np.array(numbers, dtype)):
            digest.update(piece)
    assert found["pattern"] == digest.hexdigest()


def test_several_arguments_are_a_list_and_a_fallback_is_told(url):
    request = {"args": [[1.0], [2.0]], "sparse": True, "argnums": [0, 1]}
    found = post(url, "/v1/maps/product/jacobian", request)[1]["jacobian"]
    assert [block["shape"] for block in found] == [[1, 1], [1, 1]]
    status, answer = post(url, "/v1/maps/spectrum/jacobian", {"args": [[1.0, 2.0]], "sparse": True})
    assert status == 200 and "fft" in answer["meta"]["dense_fallback"]


@pytest.mark.parametrize(
    "known", ["abc", ["abc"], [3], ["A" * 64], ["0" * 64] * (MOST_KNOWN + 1), {"a": 1}, [["0" * 64]]]
)
def test_names_that_are_none_are_refused(url, known):
    request = {"args": [[1.0]], "sparse": True, "known_patterns": known}
    status, problem = post(url, "/v1/maps/chain/jacobian", request)
    assert (status, problem["type"]) == (400, "urn:gradwire:malformed")
    assert problem["argument"] == "known_patterns"


@pytest.mark.parametrize(
    ("operation", "more"), [("grad", {}), ("evaluate", {}), ("jacobian", {"has_aux": True})]
)
def test_what_cannot_be_sparse_is_refused(url, operation, more):
    status, problem = post(url, f"/v1/maps/valley/{operation}", {"args": [[1.0]], "sparse": True, **more})
    assert (status, problem["type"], problem["argument"]) == (422, "urn:gradwire:arguments", "sparse")


def test_later_calls_bring_values_only(exchanges):
    noting, lab = exchanges
    f = lab["chain"]
    x = np.linspace(0, 1, 50)
    first, second = f.jacobian(x, sparse=True), f.jacobian(2 * x, sparse=True)
    assert "known_patterns" not in noting.asked[0]
    assert "indptr" in noting.answered[0]["jacobian"]
    assert noting.asked[1]["known_patterns"] == [noting.answered[0]["jacobian"]["pattern"]]
    assert set(noting.answered[1]["jacobian"]) == {"csr", "shape", "values", "pattern"}
    np.testing.assert_array_equal(first.indices, second.indices)
    np.testing.assert_array_equal(second.toarray(), f.jacobian(2 * x))


def test_every_block_has_a_pattern_of_its_own(exchanges):
    p = {"a": np.ones((2, 3)), "b": np.ones(3)}
    noting, lab = exchanges
    f = lab["total"]
    first, second = f.hessian(p, sparse=True), f.hessian(p, sparse=True)
    for row in ("a", "b"):
        for column in ("a", "b"):
            np.testing.assert_array_equal(first[row][column].toarray(), second[row][column].toarray())
    assert "indptr" not in str(noting.answered[1]["hessian"])


def test_a_client_keeps_a_bounded_number_of_bytes(monkeypatch):
    from gradwire import _sparse

    monkeypatch.setattr(_sparse, "HELD_BYTES", 10_000)
    patterns = Patterns()
    made = [_sparse.Pattern.of((100, n), np.full(101, n), np.zeros(n, np.int32)) for n in range(1, 200)]
    for pattern in made:
        patterns.keep("f", pattern)
    held = patterns.of("f")
    assert made[-1].name in held and made[0].name not in held
    assert sum(pattern.nbytes for pattern in held.values()) <= 10_000
    assert patterns.of("g") == {}


def test_a_request_names_no_more_than_may_be_named():
    from gradwire._sparse import Pattern

    patterns = Patterns()
    for n in range(MOST_KNOWN + 10):
        patterns.keep("f", Pattern.of((1, n + 1), np.array([0, 0]), np.zeros(0, np.int32)))
    assert len(patterns.of("f")) == MOST_KNOWN


def test_answers_that_are_no_sparse_matrices_are_refused(url):
    from gradwire._sparse import from_fields

    def read(fields: dict[str, Any]) -> Any:
        message = wire.JSON.decode(wire.JSON.encode({"jacobian": fields}, "lists")[0])
        return from_fields(message.fields["jacobian"], message, {})

    good = {"csr": True, "shape": [1, 2], "indptr": [0, 1], "indices": [1], "values": [2.0], "pattern": "x"}
    assert read(good).to_scipy().toarray().tolist() == [[0.0, 2.0]]
    for wrong in (
        {"csr": False},
        {**good, "values": [1.0, 2.0]},
        {**good, "indptr": [0, 1, 1]},
        {**good, "shape": [1]},
        {key: value for key, value in good.items() if key != "indptr"},
        {key: value for key, value in good.items() if key not in ("indptr", "indices")},
    ):
        with pytest.raises(gradwire.WireError):
            read(wrong)


def test_threads_find_a_pattern_once_and_all_get_the_matrix(lab):
    f = lab["sheet"]
    u = np.arange(30.0).reshape(5, 6)
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda _: f.jacobian(u, sparse=True).toarray(), range(6)))
    for matrix in found:
        np.testing.assert_array_equal(matrix, f.jacobian(u).reshape(60, 30))


def test_pickled_maps_answer_sparse_matrices(lab):
    x = np.ones(4)
    copied = pickle.loads(pickle.dumps(lab["chain"]))
    assert copied.jacobian(x, sparse=True).nnz == 10


def test_resident_arrays_are_arguments_too(lab):
    x = np.linspace(0, 1, 9)
    with lab.put(x) as resident:
        found = lab["chain"].jacobian(resident, sparse=True)
    np.testing.assert_array_equal(found.toarray(), lab["chain"].jacobian(x))


def test_a_service_without_the_feature_is_not_asked(lab):
    f = lab["chain"].using()
    f._features = frozenset({"transforms"})
    with pytest.raises(gradwire.NotDifferentiable, match=r"gradwire\[sparse\]"):
        f.jacobian(np.ones(3), sparse=True)


def test_a_large_tridiagonal_map(lab):
    """A hundred thousand unknowns take the same way; this many keep the suite quick."""
    n = 5_000
    x = np.linspace(-1, 1, n)
    jacobian, hessian = lab["chain"].jacobian(x, sparse=True), lab["valley"].hessian(x, sparse=True)
    assert jacobian.nnz == hessian.nnz == 3 * n - 2
    np.testing.assert_allclose(jacobian.diagonal(), -4 * x)
    np.testing.assert_allclose(hessian.diagonal(1), -400 * x[:-1])
