"""Parses NCCL's own log: one line of NCCL_DEBUG=INFO or WARN becomes an event. Pure.

The forms are those of NCCL 2.18 to 2.30. Only lines about the network or a communicator are events. Every other INFO
line gives None, and every WARN that no rule knows is a `warning`, so that none is lost.

    version            version
    network            name                                  "Using network": the network that the communicator uses
    plugin_loaded      name, api                             the table of a net plugin was found
    plugin_failed      reason                                NCCL continues without it, silently
    plugin_state       state                                 a net plugin was opened, initialised, assigned, closed
    net_devices        transport, devices                    the NICs that a transport will use
    ring               channel, ranks | before, rank, after
    channel            channel, from_rank, to_rank, direction, via
    connected          what                                  all rings, all trees
    comm_init, comm_destroy, comm_abort, comm_revoke         phase, comm, rank, ranks, cuda_device, bus_id
    connection_error   peer, reason
    retry              peer, reason
    timeout            reason
    ib_async_event     device, port, event, fatal
    ib_completion_error peer, status, status_name, device
    ib_fatal           reason
    ib_failover, ib_recovery                                 reason
    error_trace        place, code                           an ncclResult on its way up the call stack
    warning                                                  any other WARN
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Level = Literal["INFO", "WARN", "VERSION"]
Value = int | str | bool | tuple[int, ...]


@dataclass(frozen=True)
class NcclEvent:
    """The event of one line. `text` is NCCL's own sentence, without the prefix of the line."""

    kind: str
    level: Level
    text: str
    host: str = ""
    pid: int | None = None
    fields: Mapping[str, Value] = field(default_factory=dict)
    """The values in the sentence, under the names of this module's table; numbers are ints."""

    @property
    def is_trouble(self) -> bool:
        """Whether something failed or was given up, including failures that NCCL logs as INFO."""
        phase = self.fields.get("phase")
        return self.kind in TROUBLE or (self.kind == "comm_abort" and phase == "START")


MAX_CHARACTERS = 4000
"""Length that is parsed: NCCL writes no longer lines, and a number with more digits than this is not a number."""

TROUBLE = frozenset(
    {"connection_error", "timeout", "ib_async_event", "ib_completion_error", "ib_fatal", "ib_failover", "error_trace"}
    | {"warning"}
)

_PREFIX = re.compile(
    r"(?:\[[^\]]*\] )?(?P<host>\S+):(?P<pid>\d+):(?:0x)?[0-9a-fA-F]+ "
    r"(?:\[-?\d+\] )?(?:\S+:\d+ (?:\([^)]*\) )?)?NCCL (?P<level>INFO|WARN)(?: |$)(?P<text>.*)"
)
_VERSION = re.compile(r"NCCL version (?P<version>\d+\.\d+\.\d+\S*)")

_COMM = (
    r"comm (?P<comm>0x[0-9a-fA-F]+) rank (?P<rank>\d+) n[rR]anks (?P<ranks>\d+) cudaDev (?P<cuda_device>-?\d+)"
    r"(?: nvmlDev -?\d+)? busId (?P<bus_id>[0-9a-fA-F]+).* - "
)
_IB = r"NET/IB ?: (?:(?P<device>\w+):(?P<port>\d+) )?"
_PEER = r"(?P<peer>\S+?)(?:<\d+>)?"

_RULES: tuple[tuple[str, str], ...] = (
    ("network", r"Using network (?P<name>.+)"),
    ("plugin_loaded", r"NET/Plugin ?: Loaded net plugin (?P<name>.+?) \((?P<api>v\d+)\)"),
    ("plugin_failed", r"NET/Plugin ?: (?P<reason>(?:Could not find|Plugin load|dlerror=|No plugin found).*)"),
    ("plugin_failed", r"NET/Plugin ?: (?P<reason>Failed to find ncclNetPlugin symbol.*)"),
    ("plugin_failed", r"NET/Plugin ?: (?P<reason>\S+\.so\S*: .*)"),
    ("plugin_failed", r"(?P<reason>External network plugin .* is unsupported)"),
    ("plugin_failed", r"(?P<reason>Failed to initialize (?:any )?NET plugin.*)"),
    ("plugin_state", r"NET/Plugin ?: (?P<state>(?:Using|Plugin name set|Closing net plugin).*)"),
    ("plugin_state", r"(?P<state>(?:Successfully loaded external network|Initialized NET|Assigned NET) plugin .*)"),
    ("net_devices", r"NET/(?P<transport>\w+) ?: Using ?(?P<devices>\[\d+\].*)"),
    ("net_devices", r"NET/(?P<transport>\w+) ?: (?P<devices>No device found)\.?"),
    ("channel", r"Channel (?P<channel>\d+)(?:/\d+)? : (?P<from_rank>\d+)\[\w+\] -> (?P<to_rank>\d+)\[\w+\]"
                r"(?: \[(?P<direction>send|receive)\])? via (?P<via>.+)"),
    ("ring", r"Channel (?P<channel>\d+)/\d+ ?:(?P<order>(?: +\d+)+)"),
    ("ring", r"Ring (?P<channel>\d+) : (?P<before>\d+) -> (?P<rank>\d+) -> (?P<after>\d+)"),
    ("connected", r"Connected (?P<what>all (?:rings|trees)).*"),
    ("comm_init", r"(?:\[Rank \d+\] )?(?:\w+ )?" + _COMM + r"Init (?P<phase>START|COMPLETE)"),
    ("comm_destroy", _COMM + r"Destroy (?P<phase>START|COMPLETE)"),
    ("comm_abort", _COMM + r"Abort (?P<phase>START|COMPLETE)"),
    ("comm_revoke", _COMM + r"Revoke (?P<phase>START|COMPLETE).*"),
    ("connection_error", r"(?P<reason>\w+: Connection closed by remote peer) " + _PEER),
    ("connection_error", r"(?P<reason>Net : Connection closed by remote peer) " + _PEER),
    ("retry", r"(?P<reason>.*\bconnect to " + _PEER + r" returned .*retrying.*)"),
    ("retry", r"(?P<reason>Call to \w+.* returned .*retrying.*)"),
    ("connection_error", r"(?P<reason>.*\b[cC]onnect to " + _PEER + r" (?:failed|returned).*)"),
    ("connection_error", r"(?P<reason>.*Call to (?:recv from|send to) " + _PEER + r" failed.*)"),
    ("connection_error", r"(?P<reason>.*ncclOsSocketPollConnect to " + _PEER + r" failed.*)"),
    ("connection_error", r"(?P<reason>.*(?:Accept failed|exceeded error retry count).*)"),
    ("ib_async_event", _IB + r"(?P<fatal>async fatal) event(?: on .*?)?: (?P<event>.+)"),
    ("ib_async_event", _IB + r"Got (?:non-fatal )?async(?: error)? event ?: (?P<event>.+?)(?:\(\d+\))?"),
    ("ib_async_event", _IB + r"(?P<event>unknown event type \(\d+\)|GID table changed)"),
    ("ib_completion_error", r"NET/IB(?:/GIN)? ?: Got completion from peer " + _PEER +
                            r" with (?:status|error)[ =](?:(?P<status_name>[A-Za-z_ ]+)\()?(?P<status>\d+)\)?,? .*?"
                            r"(?: hca (?P<device>\w+))?"),
    ("ib_completion_error", r"NET/IB ?: Got completion with error (?P<status>\d+),.*"),
    ("ib_failover", r"NET/IB: (?P<reason>\w+: Replacing QP: .*)"),
    ("ib_recovery", r"NET/IB: (?P<reason>\w+: Restoring QP .*)"),
    ("ib_fatal", r"(?:NET/IB: )?(?P<reason>Fatal error\. Detected .*|The error is fatal .*)"),
    ("ib_fatal", r"(?P<reason>communicator encountered a fatal error.*)"),
    ("timeout", r"(?P<reason>.*\b[tT]ime(?:d ?|-)?out\b(?!s?=).*)"),
    ("error_trace", r"(?P<place>\S+:\d+) -> (?P<code>\d+)(?: .*)?"),
)  # fmt: skip
_COMPILED = tuple((kind, re.compile(pattern)) for kind, pattern in _RULES)
_NUMBERS = frozenset(
    {"channel", "from_rank", "to_rank", "before", "rank", "after", "ranks", "cuda_device"} | {"port", "status", "code"}
)


def parse(line: str) -> NcclEvent | None:
    """The event in one line of a rank's output; None if the line is not NCCL's or is none of the above."""
    if "NCCL " not in line:
        return None
    line = line[:MAX_CHARACTERS].rstrip()
    version = _VERSION.fullmatch(line)
    if version:
        return NcclEvent("version", "VERSION", line, fields=version.groupdict())
    # A search, not a match: ranks that share a terminal may write into one another's lines.
    prefix = _PREFIX.search(line)
    if prefix is None:
        return None
    level: Level = "WARN" if prefix["level"] == "WARN" else "INFO"
    kind, fields = _classified(prefix["text"], level)
    return None if kind is None else NcclEvent(kind, level, prefix["text"], prefix["host"], int(prefix["pid"]), fields)


def network_of(events: Mapping[int, list[NcclEvent]]) -> dict[int, str]:
    """By rank, the network that its last communicator uses; ranks that named none are left out."""
    named = {rank: [str(e.fields["name"]) for e in found if e.kind == "network"] for rank, found in events.items()}
    return {rank: names[-1] for rank, names in named.items() if names}


def _classified(text: str, level: Level) -> tuple[str | None, dict[str, Value]]:
    for kind, pattern in _COMPILED:
        found = pattern.fullmatch(text)
        # NCCL also logs parameters whose names contain "timeout" as INFO; only a WARN is an event.
        if found and not (kind == "timeout" and level == "INFO" and "RAS" not in text):
            return kind, _fields(kind, found.groupdict())
    return ("warning" if level == "WARN" else None), {}


def _fields(kind: str, groups: Mapping[str, str | None]) -> dict[str, Value]:
    given = {name: value.strip() for name, value in groups.items() if value is not None}
    fields: dict[str, Value] = {n: int(v) if n in _NUMBERS else v for n, v in given.items()}
    if kind == "ib_async_event":
        fields["fatal"] = "fatal" in given
    if "order" in fields:
        fields["ranks"] = tuple(int(rank) for rank in str(fields.pop("order")).split())
    return fields
