"""Options come from the command line, the environment and gradwire.toml, in this order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from gradwire._errors import ArgumentError
from gradwire_service.settings import Settings


def test_the_first_source_that_has_an_option_decides(tmp_path: Path) -> None:
    file = tmp_path / "gradwire.toml"
    file.write_text(
        'port = 1\nprecision = "float32"\nbody-bytes = "2KiB"\ncors_origin = ["http://a.example"]\n'
    )
    environ = {"GRADWIRE_PORT": "2", "GRADWIRE_PRECISION": "float64", "GRADWIRE_URL": "for the client"}
    settings = Settings.load({"port": "3"}, environ=environ, file=file)
    assert (settings.port, settings.precision, settings.body_bytes) == (3, "float64", 2048)
    assert settings.cors_origin == ("http://a.example",)
    assert settings.host == "127.0.0.1"


def test_every_option_has_a_variable() -> None:
    for name, field in Settings.model_fields.items():
        text = (
            "input"
            if name in ("precision", "device")
            else "http://a.example"
            if name == "cors_origin"
            else "1"
        )
        loaded = Settings.load(environ={f"GRADWIRE_{name.upper()}": text}, file=Path("absent"))
        assert getattr(loaded, name) != field.default or name == "precision"


@pytest.mark.parametrize(
    "text", ["a.example,b.example", " a.example , b.example,", ["a.example", "b.example"]]
)
def test_lists_are_separated_by_commas(text: Any) -> None:
    assert Settings.load({"allowed_host": text}, environ={}).allowed_host == ("a.example", "b.example")


@pytest.mark.parametrize("origin", ["*", "a.example", "https://*.example", "https://a.example/path", "null"])
def test_what_is_no_origin_cannot_be_allowed(origin: str) -> None:
    with pytest.raises(ArgumentError, match="is no origin"):
        Settings.load({"cors_origin": origin}, environ={})


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("port", "70000"),
        ("port", "x"),
        ("body_bytes", "0"),
        ("deadline", "nan"),
        ("deadline", "-1"),
        ("insecure", "?"),
    ],
)
def test_a_value_that_does_not_fit_names_the_option_and_its_source(option: str, value: str) -> None:
    with pytest.raises(ArgumentError, match=f"{option!r}, from the environment"):
        Settings.load(environ={f"GRADWIRE_{option.upper()}": value}, file=Path("absent"))


@pytest.mark.parametrize(("text", "told"), [("prot = 1", "'prot', from"), ("port =", "is not TOML")])
def test_a_file_that_cannot_be_used_is_told(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "gradwire.toml"
    file.write_text(text)
    with pytest.raises(ArgumentError, match=told):
        Settings.load(environ={}, file=file)


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError):
        Settings().__setattr__("port", 1)


def test_the_limits_of_a_message_are_those_of_the_settings() -> None:
    limits = Settings.load({"body_bytes": 1000, "wire_depth": 3, "wire_objects": 7}, environ={}).wire_limits
    assert (limits.body_bytes, limits.depth, limits.objects) == (1000, 3, 7)
