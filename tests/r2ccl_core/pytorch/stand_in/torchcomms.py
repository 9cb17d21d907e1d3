"""What torchcomms 0.3.0 does with a back end in Python, and no more, where torchcomms cannot be imported.

Read in its sources: the entry point is loaded when a communicator is made, the class is made without arguments, and
calls arrive by position. A call that returns None has ended.
"""

from collections.abc import Callable, Mapping
from datetime import timedelta
from enum import Enum
from importlib.metadata import entry_points
from types import SimpleNamespace
from typing import Any


class RedOpType(Enum):
    SUM, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM, AVG = range(9)


class ReduceOp:
    def __init__(self, kind: RedOpType) -> None:
        self.type = kind


for kind in RedOpType:
    setattr(ReduceOp, kind.name, ReduceOp(kind))


class TorchCommBackend: ...


_classes: dict[str, Callable[[], Any]] = {}


def register_backend(name: str, backend_class: Callable[[], Any]) -> None:
    _classes.setdefault(name, backend_class)


def new_comm(
    backend: str,
    device: Any,
    name: str,
    store: Any = None,
    timeout: timedelta = timedelta(minutes=10),
    hints: Mapping[str, str] | None = None,
) -> "TorchComm":
    if backend not in _classes:
        next(iter(entry_points(group="torchcomms.backends", name=backend))).load()
    made = _classes[backend]()
    made.init(device, name, SimpleNamespace(store=store, timeout=timeout, hints=dict(hints or {})))
    return TorchComm(made)


class TorchComm:
    def __init__(self, made: Any) -> None:
        self._made = made

    def get_backend(self) -> str:
        return str(self._made.get_backend_name())

    def split(self, ranks: list[int], name: str) -> "TorchComm | None":
        made = self._made.split(ranks, name, SimpleNamespace(store=None, timeout=timedelta(minutes=10)))
        return None if made is None else TorchComm(made)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._made, name)

        def call(*args: Any, **named: Any) -> Any:
            found = method(*args, *named.values())
            return Work(found) if "async_op" in named else found

        return call


class Work:
    def __init__(self, of: Any) -> None:
        self._of, self._done = of, of is None

    def wait(self) -> None:
        if self._of is not None:
            self._of.wait()
        self._done = True

    def is_completed(self) -> bool:
        return self._done
