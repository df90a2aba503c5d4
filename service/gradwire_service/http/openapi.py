"""The service described for programs: OpenAPI 3.1, with both body formats, written from tables.

The routes that compute hold plain ASGI objects (a FastAPI route costs more than a small
gradient), so their description stands here.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from gradwire._errors import KINDS

Schema = dict[str, Any]

MSGPACK = "application/msgpack"
JSON = "application/json"

OPERATIONS = {
    "evaluate": "the value",
    "jacobian": "the Jacobian, of shape value.shape + argument.shape",
    "jvp": "the value and its directional derivative along tangents",
    "vjp": "the value and the cotangents pulled back from one",
    "grad": "the gradient of a scalar map",
    "value_and_grad": "the value and the gradient of a scalar map",
    "hessian": "the Hessian",
    "hvp": "the Hessian times tangents, without forming it",
    "linearize": "the value, and an id under which the derivative at this point is kept",
    "eval_shape": "shapes and dtypes of the value; nothing is computed",
}

ARGNUMS: Schema = {
    "anyOf": [
        {"type": "integer"},
        {"type": "array", "items": {"type": "integer"}, "minItems": 1},
        {"type": "null"},
    ]
}


def _nullable(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def request_fields(tree: Schema) -> dict[str, Schema]:
    """The fields of a request's envelope (contract of `POST /v1/maps/{name}/{operation}`)."""
    trees = _nullable({"type": "array", "items": tree})
    flag = _nullable({"type": "boolean"})
    text = _nullable({"type": "string"})
    return {
        "args": trees | {"description": "Positional arguments: the primals of every operation."},
        "kwargs": _nullable({"type": "object", "additionalProperties": tree})
        | {"description": "Keyword and static arguments; never differentiated."},
        "tangents": trees
        | {"description": "jvp, hvp: one per argument, null is zero. Leading dimensions stack."},
        "cotangent": tree | {"description": "vjp: in the form of the value. Leading dimensions stack."},
        "argnums": ARGNUMS
        | {"description": "The positional arguments to differentiate. A number answers bare, a list a list."},
        "mode": _nullable({"enum": ["auto", "fwd", "rev"]})
        | {"description": "jacobian: direction of differentiation."},
        "sparse": flag | {"description": "jacobian, hessian: answer as compressed sparse rows."},
        "holomorphic": flag | {"description": "The map is promised to be holomorphic, as in JAX."},
        "has_aux": flag | {"description": "The map returns (value, auxiliary data), as in JAX."},
        "transforms": _nullable({"type": "array", "items": _ref("Transform")})
        | {"description": "Transforms of the map before the operation, innermost first."},
        "precision": text | {"description": 'A policy: "input", a dtype, or "compute=…,output=…,matmul=…".'},
        "device": text
        | {"description": 'Where to compute: "cpu", "gpu", "gpu:1"; null lets the server choose.'},
        "known_patterns": _nullable({"type": "array", "items": {"type": "string"}})
        | {"description": "Hashes of sparsity patterns the caller holds; these come without indices."},
    }


def _answer_fields(tree: Schema) -> dict[str, Schema]:
    either: Schema = {"anyOf": [tree, {"type": "array", "items": tree}]}
    return {
        "value": tree,
        "jacobian": either,
        "tangent": tree,
        "cotangents": {"type": "array", "items": tree},
        "gradient": either,
        "hessian": either,
        "product": either,
        "shapes": tree,
        "linearization": {
            "type": "object",
            "properties": {"id": {"type": "string"}, "expires": {"type": "number"}},
            "required": ["id", "expires"],
        },
        "meta": _ref("Meta"),
    }


def _tree(array: str) -> Schema:
    return {
        "description": f"Numbers, text, null, arrays ({array}), and lists, objects and tuples of these.",
        "anyOf": [
            {"type": ["null", "boolean", "number", "string"]},
            _ref(array),
            {"type": "object", "properties": {"tuple": {"type": "array"}}, "required": ["tuple"]},
            {"type": "object", "properties": {"ref": {"type": "string"}}, "required": ["ref"]},
            {"type": "object", "properties": {"dict": {"type": "object"}}, "required": ["dict"]},
            {"type": "array", "items": _ref(f"{array}Tree")},
            {"type": "object", "additionalProperties": _ref(f"{array}Tree")},
        ],
    }


def _schemas() -> dict[str, Schema]:
    shape: Schema = {"type": "array", "items": {"type": "integer", "minimum": 0}, "maxItems": 32}
    schemas: dict[str, Schema] = {
        "MsgpackArray": {
            "description": "An array as msgpack-numpy writes it. Keys are text or, all of them, bin.",
            "type": "object",
            "properties": {
                "nd": {
                    "type": "boolean",
                    "description": "false for a scalar, which has no kind and no shape",
                },
                "type": {"type": "string", "examples": ["<f8", "<c8", "bfloat16"]},
                "kind": {"const": ""},
                "shape": shape,
                "data": {
                    "description": "bin: the elements in C order; a list of bins above 4 GiB",
                    "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
                },
            },
            "required": ["nd", "type"],
        },
        "JsonArray": {
            "description": "Nested lists of numbers, or the elements with their dtype and shape. "
            'Not finite: "NaN", "Infinity", "-Infinity". Complex: {"re", "im"}.',
            "anyOf": [
                {"type": "array"},
                {
                    "type": "object",
                    "properties": {"dtype": {"type": "string"}, "shape": shape, "data": {"type": "array"}},
                    "required": ["dtype", "shape"],
                },
                {
                    "type": "object",
                    "properties": {
                        "dtype": {"type": "string"},
                        "shape": shape,
                        "base64": {"type": "string", "contentEncoding": "base64"},
                    },
                    "required": ["dtype", "shape", "base64"],
                },
            ],
        },
        "Transform": {
            "type": "object",
            "properties": {
                "name": {
                    "enum": ["grad", "value_and_grad", "jacfwd", "jacrev", "jacobian", "hessian", "vmap"]
                },
                "argnums": ARGNUMS,
                "in_axes": {"description": "vmap: as in JAX"},
                "out_axes": {"description": "vmap: as in JAX"},
                "holomorphic": {"type": "boolean"},
                "has_aux": {"type": "boolean"},
            },
            "required": ["name"],
            "additionalProperties": False,
        },
        "Meta": {
            "type": "object",
            "properties": {
                "map": {"type": "string"},
                "version": {"type": "string"},
                "device": {"type": "string"},
                "computed_in": {"type": "string", "description": "the precision of the computation"},
                "lossy": {"type": "boolean", "description": "whether that is below the input's"},
                "request_id": {"type": "string"},
            },
        },
        "Map": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "version": {"type": "string"},
                "doc": {"type": ["string", "null"]},
                "operations": {"type": "array", "items": {"enum": list(OPERATIONS)}},
                "policies": {"type": "array", "items": {"type": "string"}},
                "parameters": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "name": {"type": "string"},
                            "kind": {"type": "string"},
                            "shape": {"type": ["string", "null"]},
                            "dtype": {"type": ["string", "null"]},
                            "static": {"type": "boolean"},
                            "default": {},
                        },
                    },
                },
                "returns": {"type": ["object", "null"]},
            },
            "required": ["name", "version", "operations", "parameters"],
        },
        "Maps": {
            "type": "object",
            "properties": {
                "protocol": {"const": 1},
                "features": {"type": "array", "items": {"type": "string"}},
                "maps": {"type": "array", "items": _ref("Map")},
            },
            "required": ["protocol", "features", "maps"],
        },
        "Problem": {
            "description": "RFC 9457 problem details.",
            "type": "object",
            "properties": {
                "type": {"enum": [f"urn:gradwire:{kind}" for kind in KINDS]},
                "title": {"type": "string"},
                "status": {"type": "integer"},
                "detail": {"type": "string"},
                "instance": {"type": "string", "description": "urn:gradwire:request: and the X-Request-Id"},
                "map": {"type": "string"},
                "argument": {"type": "string"},
                "expected": {"type": "string"},
                "got": {"type": "string"},
                "missing": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": "410: the ids not held",
                },
            },
            "required": ["type", "title", "status", "detail"],
        },
    }
    for array in ("MsgpackArray", "JsonArray"):
        tree = _ref(f"{array}Tree")
        format = array.removesuffix("Array")
        schemas[f"{array}Tree"] = _tree(array)
        schemas[f"{format}Request"] = {
            "type": "object",
            "properties": request_fields(tree),
            "additionalProperties": False,
        }
        schemas[f"{format}Answer"] = {
            "type": "object",
            "properties": _answer_fields(tree),
            "required": ["meta"],
        }
        schemas[f"{format}Pull"] = {
            "type": "object",
            "properties": {
                "tangents": {"type": "array", "items": tree, "description": "jvp"},
                "cotangent": tree | {"description": "vjp"},
            },
            "additionalProperties": False,
        }
    return schemas


def _content(name: str, *, examples: dict[str, Any] | None = None) -> dict[str, Any]:
    """Both formats of the message ``name``."""
    as_json: dict[str, Any] = {"schema": _ref(f"Json{name}")}
    if examples:
        as_json["examples"] = {title: {"value": value} for title, value in examples.items()}
    packed: Schema = {"contentMediaType": MSGPACK, "contentSchema": _ref(f"Msgpack{name}")}
    return {MSGPACK: {"schema": {"type": "string", "format": "binary"} | packed}, JSON: as_json}


EXAMPLES = {
    "evaluate": {"args": [[1.0, 2.0]]},
    "jvp": {"args": [[1.0, 2.0]], "tangents": [[1.0, 0.0]]},
    "vjp": {"args": [[1.0, 2.0]], "cotangent": 1.0},
    "the Jacobian of the gradient": {"args": [[1.0, 2.0]], "transforms": [{"name": "grad"}]},
}

EVERYWHERE = (
    "malformed",
    "unauthorized",
    "forbidden",
    "method",
    "not-acceptable",
    "internal",
    "overloaded",
    "draining",
)
"""Kinds of error that any route under /v1 may answer with."""

WITH_BODY = ("slow-body", "too-large", "media-type")

COMPUTING = (
    *WITH_BODY,
    *("arguments", "shape", "dtype", "not-differentiable", "map-failed", "answer-too-large"),
    *("quota", "out-of-memory", "deadline", "gone"),
)


def _problems(*kinds: str) -> dict[str, Any]:
    """The error responses of a route, by status."""
    statuses = sorted({KINDS[kind].status for kind in (*EVERYWHERE, *kinds)})
    return {str(status): {"$ref": f"#/components/responses/Problem{status}"} for status in statuses}


def _problem_responses() -> dict[str, Any]:
    by_status: dict[int, list[str]] = {}
    for kind, (status, _, _) in KINDS.items():
        by_status.setdefault(status, []).append(kind)
    return {
        f"Problem{status}": {
            "description": " or ".join(KINDS[kind].title for kind in kinds),
            "content": {
                "application/problem+json": {"schema": _ref("Problem")},
                "application/problem+msgpack": {
                    "schema": {"type": "string", "format": "binary"}
                    | {"contentMediaType": MSGPACK, "contentSchema": _ref("Problem")}
                },
            },
            "headers": {"X-Request-Id": {"schema": {"type": "string"}}}
            | ({"Retry-After": {"schema": {"type": "integer"}}} if status in (429, 503) else {}),
        }
        for status, kinds in by_status.items()
    }


def _path_parameter(name: str, description: str, schema: Schema | None = None) -> dict[str, Any]:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": description,
        "schema": schema or {"type": "string"},
    }


def _header(name: str, description: str, schema: Schema | None = None) -> dict[str, Any]:
    return {"name": name, "in": "header", "description": description, "schema": schema or {"type": "string"}}


REQUEST_HEADERS = [
    _header(
        "Gradwire-Timeout", "seconds the caller will still wait", {"type": "number", "exclusiveMinimum": 0}
    ),
    _header("X-Request-Id", "echoed when it is 1 to 64 letters, digits, dots, dashes and underscores"),
    _header("traceparent", "W3C trace context"),
]

MAP_NAME = _path_parameter("name", "a map's name, or name@version")


def _answered(description: str, content: dict[str, Any]) -> dict[str, Any]:
    headers = {
        "X-Request-Id": {"schema": {"type": "string"}},
        "Server-Timing": {"schema": {"type": "string"}, "description": "milliseconds of each stage"},
    }
    return {"description": description, "content": content, "headers": headers}


def _json_get(
    operation_id: str, summary: str, schema: Schema, *kinds: str, parameters: Any = ()
) -> dict[str, Any]:
    return {
        "get": {
            "operationId": operation_id,
            "summary": summary,
            "parameters": list(parameters),
            "responses": {
                "200": {"description": summary, "content": {JSON: {"schema": schema}}},
                **_problems(*kinds),
            },
        }
    }


def _html_get(operation_id: str, summary: str) -> dict[str, Any]:
    responses = {"200": {"description": summary, "content": {"text/html": {"schema": {"type": "string"}}}}}
    return {"get": {"operationId": operation_id, "summary": summary, "responses": responses}}


def _paths() -> dict[str, Any]:
    anything: Schema = {"type": "object"}
    linearization = _path_parameter("id", "as `linearize` answered it")
    digest = _path_parameter(
        "sha256", "hash of the canonical array", {"type": "string", "pattern": "^[0-9a-f]{64}$"}
    )
    canonical = {MSGPACK: {"schema": {"contentMediaType": MSGPACK, "contentSchema": _ref("MsgpackArray")}}}
    nothing = {"description": "Done; nothing more to say"}
    return {
        "/v1/maps": _json_get("listMaps", "The hosted maps", _ref("Maps")),
        "/v1/maps/{name}": _json_get(
            "describeMap", "One map", _ref("Map"), "map-not-found", parameters=[MAP_NAME]
        ),
        "/v1/maps/{name}/{operation}": {
            "post": {
                "operationId": "query",
                "summary": "Evaluate a map or take a derivative",
                "description": "\n".join(f"- `{name}`: {what}" for name, what in OPERATIONS.items()),
                "parameters": [
                    MAP_NAME,
                    _path_parameter("operation", "what is asked", {"enum": list(OPERATIONS)}),
                    *REQUEST_HEADERS,
                ],
                "requestBody": {"required": True, "content": _content("Request", examples=EXAMPLES)},
                "responses": {
                    "200": _answered("What was asked for", _content("Answer")),
                    **_problems("map-not-found", "route-not-found", *COMPUTING),
                },
            }
        },
        "/v1/linearizations/{id}/{operation}": {
            "post": {
                "operationId": "applyLinearization",
                "summary": "Apply a derivative that the service keeps",
                "parameters": [
                    linearization,
                    _path_parameter("operation", "what is asked", {"enum": ["jvp", "vjp", "dense"]}),
                    *REQUEST_HEADERS,
                ],
                "requestBody": {
                    "required": True,
                    "content": _content("Pull", examples={"jvp": {"tangents": [[1.0, 0.0]]}, "dense": {}}),
                },
                "responses": {
                    "200": _answered("tangent, cotangents or jacobian", _content("Answer")),
                    **_problems("route-not-found", *COMPUTING),
                },
            }
        },
        "/v1/linearizations/{id}": {
            "delete": {
                "operationId": "closeLinearization",
                "summary": "Let the service forget a linearization",
                "parameters": [linearization],
                "responses": {"204": nothing, **_problems("gone")},
            }
        },
        "/v1/arrays/{sha256}": {
            "put": {
                "operationId": "putArray",
                "summary": "Keep an array on the server, to be named as {ref: sha256} in requests",
                "parameters": [digest],
                "requestBody": {"required": True, "content": canonical},
                "responses": {
                    "200": {"description": "It was already kept"},
                    "201": {"description": "It is kept now"},
                    **_problems(*WITH_BODY, "arguments", "quota", "out-of-memory"),
                },
            },
            "get": {
                "operationId": "getArray",
                "summary": "A kept array",
                "parameters": [digest],
                "responses": {"200": {"description": "The array", "content": canonical}, **_problems("gone")},
            },
            "delete": {
                "operationId": "deleteArray",
                "summary": "Let the service forget an array",
                "parameters": [digest],
                "responses": {"204": nothing, **_problems("gone")},
            },
        },
        "/v1/devices": _json_get("listDevices", "Devices, their memory and queues", anything),
        "/health/live": _json_get("live", "Whether the event loop answers", anything),
        "/health/ready": _json_get("ready", "Whether requests should come here", anything, "draining"),
        "/openapi.json": _json_get("openapi", "This document", anything),
        "/docs": _html_get("docs", "This document, for people"),
        "/": _html_get("home", "The hosted maps, for people"),
    }


@cache
def document() -> dict[str, Any]:
    """The OpenAPI 3.1 document; the version is the protocol's."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Gradwire",
            "version": "1",
            "summary": "A remote differentiation service",
            "description": "Maps from arrays to arrays, evaluated and differentiated. Bodies are msgpack or "
            "JSON, answered in kind unless Accept says otherwise. GET answers in JSON.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "paths": _paths(),
        "components": {"schemas": _schemas(), "responses": _problem_responses()},
    }
