"""The agreement's messages as bytes: one JSON object each."""

import json
from collections.abc import Callable
from typing import Any

from r2ccl_core.control.agreement import KINDS, Call, Handles, Message, Offers, Switch, Wire
from r2ccl_core.model.health import Health

_KINDS: dict[str, Callable[..., Message]] = {kind.__name__: kind for kind in KINDS}


def encode(message: Message) -> bytes:
    """`message` as bytes."""
    fields: dict[str, Any] = dict(vars(message))
    if isinstance(message, Call | Switch):
        fields["health"] = [message.health.nics, message.health.lost, message.health.gpus]
    elif isinstance(message, Offers | Wire):
        fields["handles"] = [[connection, handle.hex()] for connection, handle in message.handles]
    return json.dumps({"kind": type(message).__name__, **fields}).encode()


def decode(data: bytes) -> Message:
    """The message that `encode` turned into `data`; raises `ValueError` for anything else."""
    try:
        fields = json.loads(data)
        kind = _KINDS[fields.pop("kind")]
        return kind(**{name: _READ.get(name, _same)(value) for name, value in fields.items()})
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no message of an agreement: {data[:80]!r}") from error


def _same(value: Any) -> Any:
    return value


def _handles(value: Any) -> Handles:
    return tuple(((source, target, lane), bytes.fromhex(handle)) for (source, target, lane), handle in value)


def _health(value: Any) -> Health:
    nics, lost, gpus = value
    return Health(tuple(nics), tuple(map(tuple, lost)), gpus)


_READ: dict[str, Callable[[Any], Any]] = {
    "lost": tuple,
    "works": tuple,
    "connections": lambda value: tuple(map(tuple, value)),
    "handles": _handles,
    "health": _health,
}
