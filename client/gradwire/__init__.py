"""Remote differentiation: maps on a service, as operators that look local.

::

    import gradwire

    lab = gradwire.connect("http://gpu-host:8000")
    f = lab["rosenbrock"]
    f(x); f.jacobian(x); f.jvp((x,), (v,)); f.vjp((x,), w)
    gradwire.vmap(gradwire.grad(f))(xs)

This package needs NumPy, httpx and msgpack, and imports nothing else until an array of
another library is given to it.
"""

from importlib.metadata import PackageNotFoundError, version

from gradwire._errors import (
    AnswerTooLarge,
    ArgumentError,
    DeadlineExceeded,
    DenseFallbackWarning,
    DTypeError,
    GradwireError,
    LinearizationLost,
    MapFailed,
    MapNotFound,
    NotDifferentiable,
    OutOfMemory,
    Overloaded,
    PrecisionWarning,
    QuotaExceeded,
    ServiceUnavailable,
    ShapeError,
    Unauthorized,
    WireError,
)
from gradwire._jax_names import (
    grad,
    hessian,
    jacfwd,
    jacobian,
    jacrev,
    jit,
    jvp,
    linearize,
    value_and_grad,
    vjp,
    vmap,
)
from gradwire._linear import LinearOperator
from gradwire._operator import Operator
from gradwire._remote import RemoteMap
from gradwire._reports import CheckReport, CostReport, Explanation
from gradwire._resident import ResidentArray
from gradwire._service import Service, connect
from gradwire._signature import Parameter, Signature
from gradwire.wire import ArraySpec

try:
    __version__ = version("gradwire")
except PackageNotFoundError:  # a source tree that was not installed
    __version__ = "0"

__all__ = [
    "AnswerTooLarge",
    "ArgumentError",
    "ArraySpec",
    "CheckReport",
    "CostReport",
    "DTypeError",
    "DeadlineExceeded",
    "DenseFallbackWarning",
    "Explanation",
    "GradwireError",
    "LinearOperator",
    "LinearizationLost",
    "MapFailed",
    "MapNotFound",
    "NotDifferentiable",
    "Operator",
    "OutOfMemory",
    "Overloaded",
    "Parameter",
    "PrecisionWarning",
    "QuotaExceeded",
    "RemoteMap",
    "ResidentArray",
    "Service",
    "ServiceUnavailable",
    "ShapeError",
    "Signature",
    "Unauthorized",
    "WireError",
    "__version__",
    "connect",
    "grad",
    "hessian",
    "jacfwd",
    "jacobian",
    "jacrev",
    "jit",
    "jvp",
    "linearize",
    "value_and_grad",
    "vjp",
    "vmap",
]
