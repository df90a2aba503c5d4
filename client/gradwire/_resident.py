"""ResidentArray: an array kept on the service, named in requests instead of being sent again."""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakSet

import numpy as np

from gradwire import kinds, wire
from gradwire._errors import ArgumentError, LinearizationLost
from gradwire._trees import normalized

if TYPE_CHECKING:
    from gradwire._service import Service


class Kept:
    """The client's private copy of what it put, by which a service that lost it gets it again.

    Shared by all the handles of one service that name the same contents.
    """

    def __init__(self, array: np.ndarray, sha256: str) -> None:
        self.array = array
        self.sha256 = sha256
        self.handles: WeakSet[ResidentArray] = WeakSet()

    @property
    def path(self) -> str:
        return path_of(self.sha256)

    def body(self) -> list[bytes | memoryview]:
        """The canonical array, whose hash is its name."""
        return list(wire.canonical(self.array))


def path_of(sha256: str) -> str:
    """The path of the array with that hash."""
    return f"/v1/arrays/{sha256}"


class ResidentArray:
    """An array kept on the service; made by ``lab.put(x)``, good wherever an array is.

    The client keeps a private copy, so that a service that was started anew gets it
    again without a word. A pickled one carries no data: it names the array on
    the service.

    Attributes:
        shape: as of the array that was put.
        dtype: its NumPy dtype.
        sha256: the hash of its canonical form, which is its name.
    """

    def __init__(self, service: Service, kept: Kept, kind: kinds.Kind, like: Any) -> None:
        self.shape: tuple[int, ...] = kept.array.shape
        self.dtype: np.dtype[Any] = kept.array.dtype
        self.sha256 = kept.sha256
        self._service = service
        self._kept: Kept | None = kept
        self._kind = kind
        self._like = like
        self._closed = False
        kept.handles.add(self)

    @classmethod
    def put(cls, service: Service, x: Any) -> Self:
        """Puts ``x`` on the service, unless it is there already."""
        x = normalized(x, argument="x")
        kind = kinds.kind_of(x)
        if kind is None:
            raise ArgumentError(
                "Only one array can be put; put the leaves of a tree one by one.",
                argument="x",
                expected="an array",
                got=type(x).__name__,
            )
        array = np.array(kind.to_numpy(x), order="C", copy=True, subok=False)
        # An empty array of the same kind remembers the device without holding the data.
        like = kind.from_numpy(np.empty(0, array.dtype), x)
        name = wire.sha256(array)
        kept = service.session.kept.setdefault(name, Kept(array, name))
        service.send("PUT", kept.path, kept.body())
        return cls(service, kept, kind, like)

    @property
    def ref(self) -> wire.Ref:
        """What stands for it in a request.

        Raises:
            ValueError: it was closed.
        """
        if self._closed:
            raise ValueError("This resident array was closed; put the array again.")
        return wire.Ref(self.sha256)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def get(self) -> Any:
        """The array: fresh, in the kind that was put, on the device it came from.

        Raises:
            LinearizationLost: the service has lost it, and this handle (a pickled one) has no copy.
            ValueError: it was closed.
        """
        path = path_of(self.ref.sha256)
        if self._kept is not None:
            return self._kind.from_numpy(self._kept.array.copy(), self._like)
        message = self._service.request("GET", path, None)
        return self._kind.from_numpy(message.tree(message.fields), self._like)

    def close(self) -> None:
        """Lets the service forget it, unless another open handle names the same contents."""
        if self._closed:
            return
        self._closed = True
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.handles.discard(self)
            if kept.handles:
                return
        with contextlib.suppress(LinearizationLost):  # Gone already: that is what was asked for.
            self._service.send("DELETE", path_of(self.sha256), None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = ", closed" if self._closed else ""
        return f"ResidentArray(shape={self.shape}, dtype={self.dtype}, sha256={self.sha256[:12]}…{state})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": None}
