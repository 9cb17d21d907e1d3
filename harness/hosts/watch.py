"""The watch of one host as a value: how its program is started, and its report (`harness.hosts.watcher`)."""

import array
import base64
import json
import math
import sys
import zlib
from collections.abc import Mapping, Sequence
from signal import SIGKILL

from harness.errors import HostError, HostTimeoutError
from harness.hosts.base import Reading
from harness.hosts.session import AgentProcess, Session, source_of

STOP_S = 15.0
"""How long a watch may take to report after it is asked to stop: translated guests on a busy machine took over 3 s."""


class Watch:
    """One running watch. It ends with the agent at the latest."""

    def __init__(self, session: Session, nics: Sequence[str], pids: Mapping[str, int], interval_s: float) -> None:
        self._told: list[str] = []
        self._said: list[str] = []
        task = {"interval_s": interval_s, "nics": list(nics), "pids": dict(pids)}
        argv = ["-I", "-S", "-c", source_of("watcher"), json.dumps(task)]
        self._process: AgentProcess = session.start(argv, {}, self._take, python=True)
        self._host = session.host

    def stop(self) -> list[Reading]:
        """Ends it; returns all readings by time. Raises `HostError` if it reported nothing."""
        self._process.close_stdin()
        try:
            self._process.wait(STOP_S)
        except HostTimeoutError:
            self._process.signal(SIGKILL)
            raise
        if not self._told:
            why = self._said[-1] if self._said else f"exit status {self._process.poll()}"
            raise HostError(self._host, f"the watch told nothing: {why}")
        return unpack_readings(self._told[0])

    def _take(self, stream: str, line: str) -> None:
        (self._told if stream == "stdout" else self._said).append(line)


def unpack_readings(line: str) -> list[Reading]:
    """The final line of a watch, as readings by time."""
    told = json.loads(line)
    columns = [_unpacked(told[name], code) for name, code in (("t_ns", "q"), ("place", "i"), ("value", "d"))]
    names: list[tuple[str, str]] = [(device, metric) for device, metric in told["series"]]
    readings = [
        Reading(t_ns, names[place][0], names[place][1], None if math.isnan(value) else value)
        for t_ns, place, value in zip(*columns, strict=True)
    ]
    return sorted(readings, key=lambda reading: reading.t_ns)


def _unpacked(text: str, code: str) -> array.array:  # type: ignore[type-arg]
    values = array.array(code, zlib.decompress(base64.b64decode(text)))
    if sys.byteorder != "little":
        values.byteswap()
    return values
