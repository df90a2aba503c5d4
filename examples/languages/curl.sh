#!/bin/sh
# Values and derivatives with nothing but curl: serve examples/tutorial.py, then run this.
set -eu
maps=${1:-http://127.0.0.1:8000}/v1/maps
ask() { curl --silent --show-error --fail-with-body --json "$2" "$maps/$1"; echo; }

ask polynomial/evaluate '{"args": [2.0]}'
ask polynomial/grad '{"args": [2.0]}'
ask surface/grad '{"args": [3.0, 2.0], "argnums": [0, 1]}'
ask quadratic/hessian '{"args": [[1, -1], [[2, 1], [3, 4]]]}'
ask cartesian/vjp '{"args": [[1, 2, 3]], "cotangent": [1, 0, 0]}'
ask quartic/evaluate '{"args": [[0, 1, 2], 0.5], "transforms": [{"name": "grad"}, {"name": "vmap", "in_axes": [0, null]}]}'
