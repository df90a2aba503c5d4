"""Maps that JAX cannot trace: SciPy, an implicit solve, a C library; their derivatives are given by hand."""

from __future__ import annotations

import ctypes
import ctypes.util
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float, Int
from scipy import sparse, special
from scipy.sparse import linalg

from gradwire_service import Map

# One array to one array, of the same length: the derivative is a diagonal.


def gamma(x: Float[Array, "n"]) -> Float[Array, "n"]:
    """Γ, as SciPy has it."""
    return special.gamma(x)


def gamma_jvp(primals, tangents):
    (x,), (v,) = primals, tangents
    return gamma(x), gamma(x) * special.psi(x) * v


def gamma_vjp(primals, cotangent):
    (x,) = primals
    return gamma(x), (gamma(x) * special.psi(x) * cotangent,)


hosted_gamma = Map(gamma, arrays="numpy", jvp=gamma_jvp, vjp=gamma_vjp)
forward_gamma = Map(gamma, name="forward_gamma", arrays="numpy", jvp=gamma_jvp)
reverse_gamma = Map(gamma, name="reverse_gamma", arrays="numpy", vjp=gamma_vjp)
plain_gamma = Map(gamma, name="plain_gamma", arrays="numpy")

LIBM = ctypes.CDLL(ctypes.util.find_library("m") or "libm.so.6")
LIBM.erf.restype, LIBM.erf.argtypes = ctypes.c_double, [ctypes.c_double]


def error_function(x: Float[Array, ""]) -> Float[Array, ""]:
    """erf of the C library."""
    return np.float64(LIBM.erf(float(x)))


def bell(x):
    return 2 / math.sqrt(math.pi) * np.exp(-(x**2))


hosted_erf = Map(
    error_function,
    name="erf",
    arrays="numpy",
    jvp=lambda primals, tangents: (error_function(*primals), bell(primals[0]) * tangents[0]),
    vjp=lambda primals, cotangent: (error_function(*primals), (bell(primals[0]) * cotangent,)),
    hvp="central",
)


# Several arguments: Kepler's equation by Newton's method; derivatives by the implicit function theorem.


def kepler(anomaly: Float[Array, "n"], eccentricity: Float[Array, ""]) -> Float[Array, "n"]:
    """E with E − e sin E = M."""
    E = np.array(anomaly)
    for _ in range(50):
        E = E - (E - eccentricity * np.sin(E) - anomaly) / (1 - eccentricity * np.cos(E))
    return E


def kepler_jvp(primals, tangents):
    (M, e), (dM, de) = primals, tangents
    E = kepler(M, e)
    return E, (dM + np.sin(E) * de) / (1 - e * np.cos(E))


def kepler_vjp(primals, cotangent):
    M, e = primals
    E = kepler(M, e)
    scaled = cotangent / (1 - e * np.cos(E))
    return E, (scaled, np.sum(np.sin(E) * scaled))


hosted_kepler = Map(kepler, arrays="numpy", jvp=kepler_jvp, vjp=kepler_vjp)


# A number, with Hessian products by differences where they are asked for.


def log_gamma(x: Float[Array, "n"]) -> Float[Array, ""]:
    return np.sum(special.gammaln(x))


def log_gamma_jvp(primals, tangents):
    return log_gamma(*primals), np.sum(special.psi(primals[0]) * tangents[0])


def log_gamma_vjp(primals, cotangent):
    return log_gamma(*primals), (special.psi(primals[0]) * cotangent,)


hosted_log_gamma = Map(log_gamma, arrays="numpy", jvp=log_gamma_jvp, vjp=log_gamma_vjp)
curved_log_gamma = Map(log_gamma, name="curved_log_gamma", arrays="numpy", vjp=log_gamma_vjp, hvp="central")


# JAX arrays: a rule in place of JAX's own.


def soft(x: Float[Array, "n"]) -> Float[Array, "n"]:
    """A function of JAX arrays, none of them a tracer."""
    assert isinstance(x, jax.Array) and not isinstance(x, jax.core.Tracer)
    return jnp.where(float(x[0]) > 0, jnp.log1p(jnp.exp(x)), x)


def soft_jvp(primals, tangents):
    assert all(isinstance(leaf, jax.Array) for leaf in (*primals, *tangents))
    return soft(*primals), jax.nn.sigmoid(primals[0]) * tangents[0]


def soft_vjp(primals, cotangent):
    assert isinstance(cotangent, jax.Array)
    return soft(*primals), [jax.nn.sigmoid(primals[0]) * cotangent]


hosted_soft = Map(soft, jvp=soft_jvp, vjp=soft_vjp)


# Pytrees, integers, statics, keywords.


def spring(state, steps: Int[Array, ""]):
    """{"x", "k", "label"} and an integer to {"force", "parts", "steps"}."""
    force = -state["k"] * state["x"] * steps
    return {"force": force, "parts": (np.sum(force), [state["x"] ** 2]), "steps": steps + 1}


def spring_jvp(primals, tangents):
    (state, steps), (moved, none) = primals, tangents
    assert none is None and moved["label"] is None
    force = -(moved["k"] * state["x"] + state["k"] * moved["x"]) * steps
    return spring(*primals), {
        "force": force,
        "parts": (np.sum(force), [2 * state["x"] * moved["x"]]),
        "steps": None,
    }


def spring_vjp(primals, cotangent):
    state, steps = primals
    whole = cotangent["force"] + cotangent["parts"][0]
    x = -state["k"] * steps * whole + 2 * state["x"] * cotangent["parts"][1][0]
    k = np.sum(-state["x"] * steps * whole)
    return spring(*primals), ({"x": x, "k": k, "label": None}, None)


hosted_spring = Map(
    spring,
    arrays="numpy",
    jvp=spring_jvp,
    vjp=spring_vjp,
    example=({"x": np.ones(3), "k": np.float64(2.0), "label": np.int64(1)}, np.int64(2)),
)


def powered(x: Float[Array, "n"], order: Any = 2, *, shift: Float[Array, "n"], flip: Any = False):
    """x**order + shift: static arguments and a keyword array."""
    return (-1 if flip else 1) * x**order + shift


def powered_jvp(primals, tangents, *, shift, flip=False):
    x, order = (*primals, 2)[:2]
    tangent = (-1 if flip else 1) * order * x ** (order - 1) * tangents[0]
    return powered(x, order, shift=shift, flip=flip), tangent


def powered_vjp(primals, cotangent, *, shift, flip=False):
    x, order = (*primals, 2)[:2]
    found = (-1 if flip else 1) * order * x ** (order - 1) * cotangent
    return powered(x, order, shift=shift, flip=flip), (found, None)[: len(primals)]


hosted_powered = Map(
    powered, arrays="numpy", jvp=powered_jvp, vjp=powered_vjp, static_argnames=("order", "flip")
)


# Complex numbers in the four directions; a vjp is JAX's: the transpose, without a conjugation.


def square(z: Complex[Array, "n"]) -> Complex[Array, "n"]:
    """Holomorphic."""
    return z**2


hand_square = Map(
    square,
    name="hand_square",
    arrays="numpy",
    jvp=lambda p, t: (square(*p), 2 * p[0] * t[0]),
    vjp=lambda p, w: (square(*p), (2 * p[0] * w,)),
)
reverse_square = Map(
    square, name="reverse_square", arrays="numpy", vjp=lambda p, w: (square(*p), (2 * p[0] * w,))
)


def twisted(z: Complex[Array, "n"]) -> Complex[Array, "n"]:
    """z conj(z) + conj(z): not holomorphic."""
    return z * np.conj(z) + np.conj(z)


def twisted_jvp(primals, tangents):
    z, v = primals[0], tangents[0]
    return twisted(z), v * np.conj(z) + (z + 1) * np.conj(v)


def twisted_vjp(primals, w):
    # Re(w (v conj(z) + (z + 1) conj(v))) = Re((w conj(z) + conj(w (z + 1))) v)
    z = primals[0]
    return twisted(z), (w * np.conj(z) + np.conj(w * (z + 1)),)


hand_twisted = Map(twisted, name="hand_twisted", arrays="numpy", jvp=twisted_jvp, vjp=twisted_vjp)
reverse_twisted = Map(twisted, name="reverse_twisted", arrays="numpy", vjp=twisted_vjp)


def power_of(z: Complex[Array, "n"]) -> Float[Array, ""]:
    """Σ|z|⁴: C→R, a number."""
    return np.sum(np.abs(z) ** 4)


hand_power = Map(
    power_of,
    name="hand_power",
    arrays="numpy",
    jvp=lambda p, t: (power_of(*p), np.sum(4 * np.abs(p[0]) ** 2 * np.real(np.conj(p[0]) * t[0]))),
    vjp=lambda p, w: (power_of(*p), (4 * np.abs(p[0]) ** 2 * np.conj(p[0]) * w,)),
    hvp="central",
)


def phase(x: Float[Array, "n"]) -> Complex[Array, "n"]:
    """R→C."""
    return np.exp(1j * x)


hand_phase = Map(
    phase,
    name="hand_phase",
    arrays="numpy",
    jvp=lambda p, t: (phase(*p), 1j * phase(*p) * t[0]),
    vjp=lambda p, w: (phase(*p), (np.real(1j * phase(*p) * w),)),
)


# What is wrong by hand.


def sine(x: Float[Array, "n"]) -> Float[Array, "n"]:
    return np.sin(x)


def broken(primals, vector):
    raise ArithmeticError("the detector is cold")


def writes(x: Float[Array, "n"]) -> Float[Array, "n"]:
    x[0] = 0.0
    return x


def writes_tangent(primals, tangents):
    tangents[0][:] = 0.0
    return sine(*primals), tangents[0]


def sine_map(name: str, **rules: Any) -> Map:
    return Map(sine, name=name, arrays="numpy", **rules)


long_rules = sine_map(
    "long_rules",
    jvp=lambda p, t: (sine(*p), np.append(np.cos(p[0]) * t[0], 0.0)),
    vjp=lambda p, w: (sine(*p), (np.append(np.cos(p[0]) * w, 0.0),)),
)
no_pairs = sine_map("no_pairs", jvp=lambda p, t: np.cos(p[0]) * t[0], vjp=lambda p, w: np.cos(p[0]) * w)
too_many = sine_map("too_many", vjp=lambda p, w: (sine(*p), (w, w)))
complex_rules = sine_map("complex_rules", jvp=lambda p, t: (sine(*p), 1j * t[0]))
raising = sine_map("raising", jvp=broken, vjp=broken)
doubled = sine_map(
    "doubled",
    jvp=lambda p, t: (sine(*p), 2 * np.cos(p[0]) * t[0]),
    vjp=lambda p, w: (sine(*p), (np.cos(p[0]) * w,)),
)
hosted_writes = Map(writes, arrays="numpy")
writing_rule = sine_map("writing_rule", jvp=writes_tangent)


# Operators that exist already.

MATRIX = np.random.default_rng(1).standard_normal((4, 3))
COMPLEX_MATRIX = MATRIX + 1j * MATRIX[::-1]

of_matrix = Map.from_linear_operator(MATRIX, name="of_matrix")
of_sparse = Map.from_linear_operator(sparse.csr_array(MATRIX), name="of_sparse")
of_operator = Map.from_linear_operator(
    linalg.LinearOperator(
        COMPLEX_MATRIX.shape,
        matvec=lambda v: COMPLEX_MATRIX @ v,
        rmatvec=lambda w: COMPLEX_MATRIX.conj().T @ w,
        dtype=complex,
    ),
    name="of_operator",
)


class Averages:
    """Of Pyxu's interface what a LinOp has: it stands for Pyxu only in how the parts are put together."""

    dim_shape = (2, 3)

    def apply(self, x):
        return x.mean(axis=0)

    def adjoint(self, w):
        return np.broadcast_to(w / 2, (2, 3))


class HalfSquare:
    """As a Pyxu DiffFunc: its value has shape (1,)."""

    dim_shape = (2, 3)

    def apply(self, x):
        return np.array([0.5 * np.sum(x**2)])

    def grad(self, x):
        return x


class Cubes:
    """As a Pyxu DiffMap: its Jacobian is a LinOp."""

    dim_shape = (3,)

    def apply(self, x):
        return x**3

    def jacobian(self, x):
        class Diagonal:
            def apply(self, v):
                return 3 * x**2 * v

            adjoint = apply

        return Diagonal()


pyxu_averages = Map.from_pyxu(Averages(), name="pyxu_averages")
pyxu_square = Map.from_pyxu(HalfSquare(), name="pyxu_square")
pyxu_cubes = Map.from_pyxu(Cubes(), name="pyxu_cubes")


# Real pairs of what is not finite.

hand_mirror = Map(lambda z: z, name="hand_mirror", arrays="numpy", jvp=lambda p, t: (p[0], t[0]))
