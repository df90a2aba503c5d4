"""What happens when the service has lost a linearization, in services that come and go."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager

import jax.numpy as jnp
import numpy as np
import pytest
from oracle import assert_close

import gradwire
from gradwire_service import Map, Settings, create_app
from gradwire_service.serve import listening, server

X = np.array([0.3, -1.2, 2.5])
V = np.array([1.0, -0.5, 0.25])


@contextmanager
def serving(version="1", port=0, scale=1.0, **options):
    """A service of one map, on a port of choice."""
    f = Map(lambda x: scale * jnp.sin(x), name="wave", version=version)
    settings = Settings(port=port, **options)
    with listening(settings) as (listener, url):
        running = server(create_app([f], settings), settings, url)
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            while not running.started and thread.is_alive():
                time.sleep(0.01)
            yield url, listener.getsockname()[1]
        finally:
            running.should_exit = True
            thread.join()


def test_one_that_was_lost_in_a_restart_is_made_anew():
    with serving() as (url, port):
        lab = gradwire.connect(url)
        x = X.copy()
        J = lab["wave"].linearize(x)
        x[:] = 100.0  # the client's copy is its own
        assert_close(J @ V, np.cos(X) * V)
    with serving(port=port):
        assert_close(J @ V, np.cos(X) * V)
        assert_close(J.T @ V, np.cos(X) * V)
        J.close()
        lab.close()


def test_one_that_was_pushed_out_is_made_anew():
    # Room for none: the newest stays, whatever it takes.
    with serving(linearization_bytes=1) as (url, _), gradwire.connect(url) as lab:
        f = lab["wave"]
        first, second = f.linearize(X), f.linearize(2 * X)
        for _ in range(2):
            assert_close(first.jvp(V), np.cos(X) * V)
            assert_close(second.vjp(V), np.cos(2 * X) * V)
        first.close()
        second.close()  # closing what is gone is no error


def test_one_that_is_not_kept_is_lost():
    with serving(linearization_bytes=1) as (url, _), gradwire.connect(url) as lab:
        first = lab["wave"].using(keep=False).linearize(X)
        lab["wave"].linearize(2 * X)
        for ask in (lambda: first @ V, lambda: first.T @ V, first.todense):
            with pytest.raises(gradwire.LinearizationLost) as caught:
                ask()
            assert caught.value.map == "wave"
        first.close()


def test_one_that_expired_is_lost():
    with serving(linearization_ttl=1e-6) as (url, _), gradwire.connect(url) as lab:
        J = lab["wave"].using(keep=False).linearize(X)
        with pytest.raises(gradwire.LinearizationLost):
            J @ V


def test_another_version_of_the_map_is_never_mixed_in():
    with serving(version="1") as (url, port):
        lab = gradwire.connect(url)
        J = lab["wave"].linearize(X)
    with serving(version="2", scale=3.0, port=port):
        with pytest.raises(gradwire.LinearizationLost, match="another version") as caught:
            J @ V
        assert caught.value.map == "wave"
        assert caught.value.expected == "version 1" and caught.value.got == "version 2"
        lab.close()


def test_functions_that_hold_one_make_it_anew_too():
    with serving(linearization_bytes=1) as (url, _), gradwire.connect(url) as lab:
        f = lab["wave"]
        _, pull = gradwire.vjp(f, X)
        _, push = gradwire.linearize(f, 2 * X)
        assert_close(pull(V)[0], np.cos(X) * V)
        assert_close(push(V), np.cos(2 * X) * V)
