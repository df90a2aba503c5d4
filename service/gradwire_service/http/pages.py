"""Pages for people: the hosted maps at ``/`` and the documentation at ``/docs``.

Plain HTML with one style sheet inside: no scripts, nothing from elsewhere, and every
text escaped, because a map's doc may hold anything.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from gradwire._errors import KINDS
from gradwire._signature import Signature

STYLE = """
:root { color-scheme: light dark; --line: #8885; --soft: #8882; --accent: #2563b0; }
@media (prefers-color-scheme: dark) { :root { --accent: #8ab8f5; } }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1.5rem; }
h1 { font-size: 1.7rem; } h2 { font-size: 1.25rem; margin-top: 2.5rem; } h3 { font-size: 1rem; }
a { color: var(--accent); } nav a { margin-right: 1rem; }
code, pre { font: 0.88em/1.5 ui-monospace, monospace; }
pre { background: var(--soft); padding: 0.8rem 1rem; overflow-x: auto; border-radius: 0.4rem; }
section { border-top: 1px solid var(--line); }
.doc { white-space: pre-line; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: 0.3rem 0.9rem 0.3rem 0; }
tr { border-bottom: 1px solid var(--line); }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
"""

_STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()

CONTENT_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The Content-Security-Policy of these pages: their own style, and nothing else."""


def home(maps: Sequence[Mapping[str, Any]], url: str) -> str:
    """The page at ``/``.

    Args:
        maps: descriptions, as in ``GET /v1/maps``.
        url: where the caller reached the service, for the snippets.
    """
    listed = "".join(_map(description, url) for description in maps) or "<p>No map is hosted here.</p>"
    return _page(
        "Gradwire",
        "<p>This service evaluates and differentiates the maps below. "
        "Copy a snippet to call one from Python or from a shell.</p>" + listed,
    )


def docs(document: Mapping[str, Any]) -> str:
    """The page at ``/docs``: an OpenAPI document for people."""
    routes = "".join(
        _route(document, method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    )
    kinds = _table(
        ("kind", "status", "meaning"),
        ((_code(kind), str(status), escape(title)) for kind, (status, title, _) in KINDS.items()),
    )
    info = document["info"]
    return _page(
        "Gradwire: HTTP interface",
        f"<p>{escape(info['description'])} The same for programs: "
        f'<a href="/openapi.json">openapi.json</a>.</p>{routes}'
        "<section aria-labelledby='errors'><h2 id='errors'>Errors</h2><p>Every error is a problem "
        "details message (RFC 9457) whose <code>type</code> is <code>urn:gradwire:</code> and the kind.</p>"
        f"{kinds}</section>",
    )


def _map(description: Mapping[str, Any], url: str) -> str:
    name, version = str(description["name"]), str(description["version"])
    signature = Signature.from_description(description)
    required = [p for p in signature.parameters if p.required and p.positional]
    arguments = ", ".join(p.name for p in required)
    derivative = "grad" if "grad" in description["operations"] else "jacobian"
    python = (
        f"import gradwire\n\n{_identifier(name)} = gradwire.connect({url!r})[{name!r}]\n"
        f"{_identifier(name)}({arguments})\n{_identifier(name)}.{derivative}({arguments})"
    )
    body = json.dumps({"args": [_sample(p.shape) for p in required]})
    curl = f"curl {url}/v1/maps/{name}/evaluate \\\n  -H 'Content-Type: application/json' \\\n  -d '{body}'"
    anchor = _quoted(f"map-{name}")
    doc = f"<p class='doc'>{escape(str(description['doc']))}</p>" if description.get("doc") else ""
    operations = ", ".join(_code(operation) for operation in description["operations"])
    return (
        f"<section aria-labelledby={anchor}><h2 id={anchor}>{escape(name)}</h2>"
        f"<pre><code>{escape(name + str(signature))}</code></pre>{doc}"
        f"<p>Version {_code(version)}. Operations: {operations}.</p>"
        f"<h3>Python</h3>{_pre(python, name + ' from Python')}"
        f"<h3>curl</h3>{_pre(curl, name + ' with curl')}</section>"
    )


def _identifier(name: str) -> str:
    return name.replace("-", "_")


def _sample(shape: str | None) -> Any:
    """An array of ones, as nested lists, that a declared shape takes: two along each named dimension."""
    value: Any = 1.0
    for dimension in reversed((shape or "").split()):
        size = int(dimension) if dimension.isdigit() else 2
        value = [value] * min(size, 8)
    return value


def _route(document: Mapping[str, Any], method: str, path: str, operation: Mapping[str, Any]) -> str:
    anchor = _quoted(operation["operationId"])
    parts = [
        f"<section aria-labelledby={anchor}><h2 id={anchor}>{method.upper()} {escape(path)}</h2>",
        f"<p>{escape(operation['summary'])}.</p>",
    ]
    if "description" in operation:
        lines = (line.removeprefix("- ").replace("`", "") for line in operation["description"].splitlines())
        parts.append("<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>")
    if operation.get("parameters"):
        rows = (
            (_code(p["name"]), escape(p["in"]), escape(p.get("description", "")))
            for p in operation["parameters"]
        )
        parts.append("<h3>Path and headers</h3>" + _table(("name", "in", "meaning"), rows))
    for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
        parts.append(_body(document, media_type, content))
    answers = (
        (_code(status), escape(str(_resolved(document, answer)["description"])))
        for status, answer in operation["responses"].items()
    )
    parts.append("<h3>Answers</h3>" + _table(("status", "meaning"), answers) + "</section>")
    return "".join(parts)


def _body(document: Mapping[str, Any], media_type: str, content: Mapping[str, Any]) -> str:
    schema = content["schema"]
    schema = _resolved(document, schema.get("contentSchema", schema))
    rows = (
        (_code(field), escape(_type(document, value)), escape(value.get("description", "")))
        for field, value in schema.get("properties", {}).items()
    )
    examples = "".join(
        _pre(json.dumps(example["value"]), f"example: {title}")
        for title, example in content.get("examples", {}).items()
    )
    return f"<h3>Body, {escape(media_type)}</h3>{_table(('field', 'type', 'meaning'), rows)}{examples}"


def _resolved(document: Mapping[str, Any], value: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a ``$ref`` points to."""
    if "$ref" not in value:
        return value
    found: Any = document
    for part in value["$ref"].removeprefix("#/").split("/"):
        found = found[part]
    return _resolved(document, found)


def _type(document: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """A schema in a few words."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(_type(document, option) for option in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    if schema.get("type") == "array" and "items" in schema:
        return f"list of {_type(document, schema['items'])}"
    return str(schema.get("type", schema.get("const", "anything")))


def _page(title: str, content: str) -> str:
    return (
        "<!DOCTYPE html>\n"
        f'<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style></head><body><header><h1>{escape(title)}</h1>"
        '<nav aria-label="Pages"><a href="/">Maps</a><a href="/docs">HTTP interface</a></nav></header>'
        f"<main>{content}</main></body></html>\n"
    )


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of HTML cells under a head of plain text."""
    titles = "".join(f"<th scope='col'>{escape(title)}</th>" for title in head)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<div class='scroll'><table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table></div>"


def _pre(text: str, label: str) -> str:
    """A block to copy; it takes the focus so that the keyboard can scroll it."""
    return f"<pre tabindex='0' role='region' aria-label={_quoted(label)}><code>{escape(text)}</code></pre>"


def _code(text: str) -> str:
    return f"<code>{escape(text)}</code>"


def _quoted(text: str) -> str:
    return f'"{escape(text)}"'
