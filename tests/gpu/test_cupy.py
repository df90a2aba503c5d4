"""The CuPy kind, on a machine with an NVIDIA GPU and CuPy. Not part of the core run.

python -m pytest tests/gpu/test_cupy.py
"""

from __future__ import annotations

import numpy as np
import pytest

cupy = pytest.importorskip("cupy")

from gradwire._errors import DTypeError  # noqa: E402
from gradwire.kinds import kind_of, leading  # noqa: E402

DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)


@pytest.mark.parametrize("shape", [(4, 6), (), (0, 3)], ids=["matrix", "0-d", "empty"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_goes_out_and_comes_back(dtype: str, shape: tuple[int, ...]) -> None:
    expected = (np.arange(int(np.prod(shape))).reshape(shape) % 8).astype(dtype)
    x = cupy.asarray(expected)
    kind = kind_of(x)
    assert kind is not None and kind.name == "cupy"
    host = kind.to_numpy(x)
    assert type(host) is np.ndarray and host.dtype == expected.dtype and host.shape == shape
    np.testing.assert_array_equal(host, expected)
    back = kind.from_numpy(expected, x)
    assert type(back) is cupy.ndarray and back.dtype == expected.dtype and back.device == x.device
    np.testing.assert_array_equal(cupy.asnumpy(back), expected)


def test_strided_arrays_and_read_only_answers() -> None:
    a = np.arange(24.0).reshape(4, 6)
    a.flags.writeable = False
    kind = kind_of(cupy.ones(1))
    assert kind is not None
    for view in (lambda x: x.T, lambda x: x[::-1, ::2], cupy.asfortranarray):
        np.testing.assert_array_equal(
            kind.to_numpy(view(cupy.asarray(a))), cupy.asnumpy(view(cupy.asarray(a)))
        )
    back = kind.from_numpy(a, cupy.ones(1))
    back += 1
    assert a[0, 0] == 0


def test_answers_go_to_the_gpu_of_the_argument() -> None:
    for number in range(cupy.cuda.runtime.getDeviceCount()):
        with cupy.cuda.Device(number):
            like = cupy.ones(2)
        kind = kind_of(like)
        assert kind is not None
        assert kind.from_numpy(np.ones(3), like).device.id == number


def test_cupy_leads_before_numpy() -> None:
    x = cupy.ones(1)
    kind, like = leading([np.ones(1), x])
    assert kind.name == "cupy" and like is x


def test_structured_arrays_are_refused() -> None:
    x = cupy.zeros(2, dtype=np.dtype([("a", "f8")]))
    kind = kind_of(x)
    assert kind is not None
    with pytest.raises(DTypeError):
        kind.to_numpy(x)
