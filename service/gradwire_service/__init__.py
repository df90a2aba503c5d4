"""Gradwire's service: host JAX functions, answer them and their derivatives over HTTP.

`Map` declares a function for hosting (and is the local operator); `create_app` is the
service for any ASGI server; `Settings` are its options.
"""

from gradwire_service.http.app import create_app
from gradwire_service.map import Map
from gradwire_service.settings import Settings

__all__ = ["Map", "Settings", "create_app"]
