"""Reports a host's network interfaces as its kernel sees them, as one JSON object. A stand-alone file that runs on the
host.

It needs Python 3.8 and its standard library, no program and no rights: it asks the kernel by netlink.

    {"session": {"local": "198.18.0.1", "peer": "198.18.0.254"} or null,
     "links": [{"name", "index", "mac", "permanent_mac", "up", "carrier", "loopback", "mtu", "kind", "master",
                "parent", "physical", "addresses": ["10.0.0.1/24"]}],
     "default_routes": ["eno1"], "reply_route": "eno1" or null}

`master` is the bond or bridge that an interface belongs to, `parent` the interface below (of a VLAN) or the other end
(of a veth in the same namespace). The session is the SSH session that this file runs in.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any, Iterator  # noqa: UP035  (old hosts: Python 3.8)

GETLINK, GETADDR, GETROUTE = 18, 22, 26
REQUEST, DUMP = 0x1, 0x300
DONE, ERROR = 3, 2
MAIN_TABLE, UNICAST = 254, 1
IFF_UP, IFF_LOOPBACK, IFF_LOWER_UP = 0x1, 0x8, 0x10000
FAMILIES = {4: socket.AF_INET, 16: socket.AF_INET6}


def ask(kind: int, body: bytes, flags: int) -> list[bytes]:
    """The bodies of the kernel's answers to one request. Raises OSError."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as s:
        s.bind((0, 0))
        s.sendall(struct.pack("=IHHII", 16 + len(body), kind, REQUEST | flags, 1, 0) + body)
        answers: list[bytes] = []
        while True:
            data = s.recv(1 << 18)
            while data:
                length, what = struct.unpack_from("=IH", data)
                if what == DONE:
                    return answers
                if what == ERROR:
                    raise OSError(-struct.unpack_from("=i", data, 16)[0], "netlink")
                answers.append(data[16:length])
                data = data[(length + 3) & ~3 :]
            if not flags & DUMP:
                return answers


def attributes(data: bytes) -> dict[int, bytes]:
    """The attributes of one message by their numbers."""
    found = {}
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        if length < 4:
            break
        found[kind & 0x3FFF] = data[4:length]
        data = data[(length + 3) & ~3 :]
    return found


def number(data: bytes | None) -> int | None:
    """An attribute that is a 32-bit number."""
    return None if data is None else int(struct.unpack("=I", data)[0])


def text(data: bytes) -> str:
    """An attribute that is a string."""
    return data.rstrip(b"\0").decode("utf-8", "replace")


def mac(data: bytes | None) -> str | None:
    """A MAC address in the usual notation; None if it is none."""
    return ":".join(f"{byte:02x}" for byte in data) if data and len(data) == 6 else None


def links() -> dict[int, dict[str, Any]]:
    """Every interface by its index."""
    found = {}
    for body in ask(GETLINK, struct.pack("=BxHiII", 0, 0, 0, 0, 0), DUMP):
        index, flags = struct.unpack_from("=iI", body, 4)
        has = attributes(body[16:])
        name = text(has[3])
        found[index] = {
            "name": name,
            "index": index,
            "mac": mac(has.get(1)),
            "permanent_mac": mac(has.get(54)),
            "up": bool(flags & IFF_UP),
            "carrier": bool(flags & IFF_LOWER_UP),
            "loopback": bool(flags & IFF_LOOPBACK),
            "mtu": number(has.get(4)),
            "kind": text(attributes(has.get(18, b"")).get(1, b"")) or None,
            "master": number(has.get(10)),
            "parent": None if 37 in has else number(has.get(5)),  # 37: that interface is in another namespace
            "physical": 56 in has or Path("/sys/class/net", name, "device").exists(),
            "addresses": [],
        }
    return found


def add_addresses(known: dict[int, dict[str, Any]]) -> None:
    """Adds every address, with its prefix length, to its interface."""
    for body in ask(GETADDR, struct.pack("=BBBBI", 0, 0, 0, 0, 0), DUMP):
        prefix_length, index = body[1], struct.unpack_from("=I", body, 4)[0]
        has = attributes(body[8:])
        address = has.get(2, has.get(1, b""))  # the local one; the other is a point-to-point link's far end
        if index in known and len(address) in FAMILIES:
            known[index]["addresses"].append(f"{socket.inet_ntop(FAMILIES[len(address)], address)}/{prefix_length}")


def outputs(body: bytes) -> Iterator[int]:
    """The interfaces that a route leads to."""
    has = attributes(body[12:])
    if 4 in has:
        yield struct.unpack("=i", has[4])[0]
    hops = has.get(9, b"")
    while len(hops) >= 8:
        length, index = struct.unpack("=HxxI", hops[:8])
        yield index
        hops = hops[max(8, (length + 3) & ~3) :]


def default_routes() -> set[int]:
    """The interfaces of the main table's default routes; policy routing uses other tables for data NICs."""
    found: set[int] = set()
    for family in (socket.AF_INET, socket.AF_INET6):
        for body in ask(GETROUTE, struct.pack("=BBBBBBBBI", family, 0, 0, 0, 0, 0, 0, 0, 0), DUMP):
            of, length, _, _, table, _, _, kind = struct.unpack_from("=8B", body)
            table = number(attributes(body[12:]).get(15)) or table
            if (of, length, table, kind) == (family, 0, MAIN_TABLE, UNICAST):
                found.update(outputs(body))
    return found


def route_to(peer: str) -> int | None:
    """The interface through which packets to `peer` leave."""
    family = socket.AF_INET6 if ":" in peer else socket.AF_INET
    with suppress(OSError):
        address = socket.inet_pton(family, peer)
        head = struct.pack("=BBBBBBBBI", family, 8 * len(address), 0, 0, 0, 0, 0, 0, 0)
        body = head + struct.pack("=HH", 4 + len(address), 1) + address
        return next((index for answer in ask(GETROUTE, body, 0) for index in outputs(answer)), None)
    return None


def session() -> dict[str, str] | None:
    """Both ends of the SSH session that this runs in."""
    said = os.environ.get("SSH_CONNECTION", "").split()
    if len(said) != 4:
        return None
    peer, _, local, _ = (field.partition("%")[0].replace("::ffff:", "") for field in said)
    return {"local": local, "peer": peer}


def report() -> dict[str, Any]:
    """The whole report, with names instead of indexes."""
    known, ssh = links(), session()
    add_addresses(known)
    names = {index: link["name"] for index, link in known.items()}
    for link in known.values():
        link["master"], link["parent"] = names.get(link["master"]), names.get(link["parent"])
    return {
        "session": ssh,
        "links": list(known.values()),
        "default_routes": sorted(names[index] for index in default_routes() if index in names),
        "reply_route": names.get(route_to(ssh["peer"]) or 0) if ssh else None,
    }


if __name__ == "__main__":
    print(json.dumps(report()))
