"""Chakra's execution traces as bytes: the fields, and files of length-prefixed messages.

A trace is one file per rank: a metadata message, then one message per node, each prefixed by its length as a varint.
The fields are declared here, by name, number and type; protobuf does the rest. Fields that newer versions add are kept
when a node is read and written again, as protobuf does with unknown fields.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

from r2ccl_core.errors import UsageError

PACKAGE = "r2ccl.chakra"
VERSION = "0.0.4"

VALUES = (
    "double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32",
    "sfixed64", "bool", "string", "bytes",
)  # fmt: skip
"""What an attribute may hold, one value or a list: fields 3 and 4, 5 and 6, and so on."""
FIRST_VALUE = 3

METADATA, LOAD, STORE, COMPUTE, SEND, RECEIVE, COLLECTIVE = range(1, 8)
"""Kinds of nodes."""

COLLECTIVES = (
    "all_reduce", "reduce", "all_gather", "gather", "scatter", "broadcast", "alltoall", "reduce_scatter",
    "reduce_scatter_block", "barrier",
)  # fmt: skip
"""By their numbers in ``comm_type``; under our names if we have them."""

NODE = (
    ("id", 1, "uint64", False),
    ("name", 2, "string", False),
    ("type", 3, "int32", False),  # an enumeration: the same bytes
    ("ctrl_deps", 4, "uint64", True),
    ("data_deps", 5, "uint64", True),
    ("duration_micros", 7, "uint64", False),
    ("attr", 10, "Attribute", True),
)
MOST_BYTES = 1 << 30
"""A message that claims to be longer is invalid."""


@cache
def _classes() -> dict[str, type[Message]]:
    """The message classes by name."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="r2ccl/chakra.proto", package=PACKAGE, syntax="proto3")

    def add(name: str, fields: tuple[tuple[str, int, str, bool], ...]) -> Any:
        message = file.message_type.add(name=name)
        for field, number, kind, repeated in fields:
            made = message.field.add(name=field, number=number)
            made.label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
            if kind in VALUES:
                made.type = getattr(kinds, f"TYPE_{kind.upper()}")
            else:
                made.type, made.type_name = kinds.TYPE_MESSAGE, f".{PACKAGE}.{kind}"
        return message

    one_of = []
    for place, kind in enumerate(VALUES):
        add(f"{kind.capitalize()}List", (("values", 1, kind, True),))
        number = FIRST_VALUE + 2 * place
        one_of += [
            (f"{kind}_val", number, kind, False),
            (f"{kind}_list", number + 1, f"{kind.capitalize()}List", False),
        ]
    attribute = add("Attribute", (("name", 1, "string", False), *one_of))
    attribute.oneof_decl.add(name="value")
    for field in attribute.field[1:]:
        field.oneof_index = 0
    add("Metadata", (("version", 1, "string", False), ("attr", 2, "Attribute", True)))
    add("Node", NODE)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    names = ("Attribute", "Metadata", "Node")
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in names}


def metadata(**attributes: tuple[str, Any]) -> Any:
    """The first message of a file; attributes as name and (kind of value, value)."""
    made: Any = _classes()["Metadata"]()
    made.version = VERSION
    _add(made, attributes)
    return made


def node(number: int, name: str, kind: int, *, ctrl: list[int], data: list[int], **attributes: tuple[str, Any]) -> Any:
    """A node that waits for those in ``ctrl`` and ``data``; attributes as name and (kind of value, value)."""
    made: Any = _classes()["Node"]()
    made.id, made.name, made.type = number, name, kind
    made.ctrl_deps.extend(ctrl)
    made.data_deps.extend(data)
    _add(made, attributes)
    return made


def attributes_of(message: Any) -> dict[str, Any]:
    """Attributes by name, a list where the file has one."""
    found = {}
    for one in message.attr:
        which = one.WhichOneof("value") or ""
        value: Any = getattr(one, which, None)
        found[one.name] = list(value.values) if which.endswith("_list") else value
    return found


def to_bytes(messages: list[Any]) -> bytes:
    """The file that contains these messages."""
    parts = []
    for message in messages:
        data = message.SerializeToString()
        parts += [_varint(len(data)), data]
    return b"".join(parts)


def read(path: Path) -> tuple[Any, list[Any]]:
    """Metadata and nodes of a file; raises `UsageError` with the file and the position for anything that is not a
    trace."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}); give a file of a Chakra trace") from error
    if not data:
        raise UsageError(f"{path}: is empty; a trace begins with its metadata")
    found = [
        _parsed("Node" if index else "Metadata", piece, f"{path}: message {index} at byte {at}")
        for index, (at, piece) in enumerate(_pieces(path, data))
    ]
    return found[0], found[1:]


def _parsed(name: str, piece: bytes, where: str) -> Any:
    try:
        return _classes()[name].FromString(piece)
    except DecodeError as error:
        raise UsageError(
            f"{where}: is no {name.lower()} of a Chakra trace; is the file whole, and unpacked?"
        ) from error


def _pieces(path: Path, data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        begin, size, shift = at, 0, 0
        while True:
            if at >= len(data) or shift > 63:
                raise UsageError(f"{path}: byte {begin}: no length of a message; is the file whole, and unpacked?")
            byte = data[at]
            size |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if byte < 0x80:
                break
        if size > min(MOST_BYTES, len(data) - at):
            raise UsageError(
                f"{path}: byte {begin}: a message of {size} bytes, and {len(data) - at} follow; is it whole?"
            )
        yield begin, data[at : at + size]
        at += size


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _add(message: Any, attributes: dict[str, tuple[str, Any]]) -> None:
    for name, (kind, value) in attributes.items():
        message.attr.add(name=name, **{f"{kind}_val": value})
