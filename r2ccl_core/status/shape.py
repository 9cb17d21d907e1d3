"""Which fields a status file of this schema has, and their types. Pure.

A field that is not listed belongs to a later release; a listed field that is missing or has another type means a
damaged file. Fields marked ? were added after the first release of this schema, and may be missing.
"""

from typing import Any

_Shape = type | dict[str, Any] | list[Any]

_PATHS = {"paths_up": int, "paths_down": int, "paths_held": int}
_NIC = {
    "name": str,
    "address": str,
    "state": str,
    "link_up": bool,
    **_PATHS,
    "paths_never_up?": int,
    "sent_bytes": int,
    "received_bytes": int,
    "acknowledged_bytes": int,
    "in_flight_bytes": int,
    "drain_bytes_s": float,
    "rdma_paths?": int,
    "rdma_sent_bytes?": int,
    "rdma_received_bytes?": int,
    "rdma_written_bytes?": int,
}
SHAPE: _Shape = {
    "version": str,
    "process": {
        "host": str,
        "program": str,
        "boot_id": str,
        "pid_namespace": str,
        "pid": int,
        "start_ticks": int,
    },
    "written_ns": int,
    "config": {"R2CC_MODE": int, "R2CC_STATUS_MS": int},
    "nics": [_NIC],
    "peers": [{"direction": str, "peer": str, "connections": int, "failed": int, **_PATHS}],
    "replayed_chunks": int,
    "trial_chunks?": int,
    "duplicate_chunks": int,
    "corrupt_chunks": int,
    "strangers?": [{"kind": str, "count": int}],
    "own_probes?": int,
    "verdicts": [{"nic": str, "peer": str, "verdict": str, "why": str, "standing": bool}],
    "events_total": int,
    "events": [{"t_ns": int, "kind": str, "nic": str, "peer": str, "detail": str}],
}
_NAMES = {str: "text", int: "a whole number of 64 bits", float: "a number", bool: "true or false"}


def check(value: Any, shape: _Shape = SHAPE, where: str = "") -> None:
    """Raises `ValueError` with the first place in `value` that does not match `shape`."""
    if isinstance(shape, dict):
        _demand(isinstance(value, dict), where, "an object")
        for field, inner in shape.items():
            name = field.removesuffix("?")
            if name != field and name not in value:
                continue
            place = f"{where}.{name}" if where else name
            _demand(name in value, place, "there")
            check(value[name], inner, place)
    elif isinstance(shape, list):
        _demand(isinstance(value, list), where, "a list")
        for index, one in enumerate(value):
            check(one, shape[0], f"{where}[{index}]")
    else:
        _demand(_is(value, shape), where, _NAMES[shape])


def _demand(fits: bool, where: str, what: str) -> None:
    if not fits:
        raise ValueError(f"{where} is not {what}")


def _is(value: Any, kind: type) -> bool:
    """Whether a value is exactly of `kind`: a bool is not a number. Values that cannot be printed or calculated with do
    not match."""
    if type(value) is int:
        return kind in (int, float) and -(1 << 63) <= value < 1 << 64
    if type(value) is str:
        return kind is str and not any("\ud800" <= character <= "\udfff" for character in value)
    return type(value) is kind
