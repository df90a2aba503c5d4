"""On which device a query runs."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from running import Running

import gradwire

X = np.array([1.0, 2.0])


def device_of(service: Running, map: str = "wave", **fields: object) -> str:
    answer = service.ask(map, "evaluate", X, **fields)
    assert answer.status == 200, answer.fields
    return str(answer.fields["meta"]["device"])


def test_the_devices_are_listed_by_name(service: Running) -> None:
    devices = service.devices["devices"]
    assert [device["name"] for device in devices] == ["cpu:0", "cpu:1", "cpu:2"]
    assert all(device["queued"] == 0 for device in devices)


@pytest.mark.parametrize("name", ["cpu:0", "cpu:1", "cpu:2"])
def test_a_device_is_asked_for_by_name_and_named_in_the_answer(service: Running, name: str) -> None:
    assert device_of(service, device=name) == name


def test_any_device_of_a_kind_is_asked_for_by_the_kind(service: Running) -> None:
    assert device_of(service, device="cpu").startswith("cpu:")


@pytest.mark.parametrize("name", ["gpu", "gpu:0", "cpu:3", "cpu:", "CPU:0", "cpu:0 ", "x" * 5000])
def test_an_unknown_device_is_refused_with_those_there_are(service: Running, name: str) -> None:
    answer = service.ask("wave", "evaluate", X, device=name)
    assert (answer.kind, answer.fields["argument"]) == ("arguments", "device")
    assert answer.fields["expected"] == "cpu:0, cpu:1, cpu:2"
    assert len(answer.body) < 1000


def test_a_map_has_its_own_default_which_a_request_overrides(service: Running) -> None:
    assert device_of(service, "on_the_last") == "cpu:2"
    assert device_of(service, "on_the_last", device="cpu:1") == "cpu:1"


def test_the_server_has_a_default_which_map_and_request_override(restricted: Running) -> None:
    assert device_of(restricted) == "cpu:1"
    assert device_of(restricted, device="cpu:0") == "cpu:0"
    # There is no third device here: the map says so, rather than run elsewhere.
    assert restricted.ask("on_the_last", "evaluate", X).kind == "arguments"
    assert restricted.is_healthy()


def test_a_busy_device_is_passed_over_for_a_free_one(service: Running) -> None:
    def occupy(device: str) -> None:
        service.ask("slow", "evaluate", X, device=device, kwargs={"seconds": 1.5})

    device_of(service)
    busy = [threading.Thread(target=occupy, args=(device,)) for device in ("cpu:0", "cpu:1")]
    for thread in busy:
        thread.start()
    while sum(device["queued"] for device in service.devices["devices"]) < 2:
        pass
    free = device_of(service)
    for thread in busy:
        thread.join()
    assert free == "cpu:2"


def test_a_linearization_stays_on_its_device(service: Running) -> None:
    made = service.ask("wave", "linearize", X, device="cpu:1")
    path = f"/v1/linearizations/{made.fields['linearization']['id']}"
    for operation, fields in (("vjp", {"cotangent": [1.0, 1.0]}), ("dense", {})):
        assert service.pack(f"{path}/{operation}", fields).fields["meta"]["device"] == "cpu:1"
    assert service.send("DELETE", path).status == 204


def test_the_client_asks_for_a_device_with_using(service: Running) -> None:
    with gradwire.connect(service.url, device="cpu:1") as lab:
        assert np.array_equal(lab["wave"](X), lab["wave"].using(device="cpu:2")(X))
        with pytest.raises(gradwire.ArgumentError, match="cpu:0, cpu:1, cpu:2"):
            lab["wave"].using(device="gpu")(X)
