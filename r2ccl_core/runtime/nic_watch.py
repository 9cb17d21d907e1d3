"""Reports losses and returns of NICs as they happen, to `logging` and to a callback.

`Changes` is pure: it compares the transport's table of NICs and its events with those of the previous call. `NicWatch`
is the thread that queries the transport ten times a second.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from r2ccl_core.runtime.nets import Nets

_LOOK_S = 0.1
_SURE_LOOKS = 2
_GONE_LOOKS = 20
"""Where all paths to the peers concerned are down: the transport then finds out within these two seconds whether they
have ended, also on a busy machine."""
_LEAVE_S = 2.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class NicChange:
    """A NIC is ``down`` (all its paths are lost), ``held`` (open, but none of its paths carries data, because it was
    lost too often or is slow), ``partial`` (it reaches some peers), or ``up`` again; and why."""

    name: str
    address: str
    state: str
    reason: str = ""
    was: str = "up"

    def __str__(self) -> str:
        some = "carries nothing over some of its paths" if self.was == "up" else "is back for some of its paths"
        told = {"down": "is lost", "held": "is held back", "partial": some, "up": "is back"}[self.state]
        return f"NIC {self.name} {self.address} {told}{f' ({self.reason})' if self.reason else ''}"


OnNic = Callable[[NicChange], object]


class Changes:
    """Finds what is new in the transport's state.

    A path that is still being made for the first time is no loss. A loss is reported once it has been seen several
    times: when a peer's process ends, its connections are reset before the transport knows that the peer is gone.
    """

    def __init__(self) -> None:
        self._states: dict[tuple[str, str], str] = {}
        self._looks: dict[tuple[str, str], int] = {}
        """How often in a row a loss that is not yet told was seen."""

    def update(
        self, nics: Sequence[Mapping[str, Any]], events: Callable[[], Sequence[Mapping[str, Any]]]
    ) -> list[NicChange]:
        """The changes since the last call. `events` returns the core's, and is called only if a path is down."""
        news = []
        for nic in nics:
            key = nic["name"], nic["address"]
            before = self._states.get(key, "up")
            looks = self._looks.pop(key, 0) + 1
            if nic["state"] == before:
                continue
            recovers = nic["state"] == "up" or (nic["state"] == "partial" and before in ("held", "down"))
            needed = _SURE_LOOKS if nic["paths_down"] > nic["paths_cut_off"] else _GONE_LOOKS
            if not recovers and looks < needed:
                self._looks[key] = looks
                continue
            reason = "" if recovers else _last_loss(nic["name"], nic["state"], events())
            if recovers or reason:
                self._states[key] = nic["state"]
                news.append(NicChange(*key, nic["state"], reason, before))
        return news


def _last_loss(name: str, state: str, events: Sequence[Mapping[str, Any]]) -> str:
    """Why the NIC's path that stopped last carries nothing: it was lost, or is held. Empty if there is none."""
    kinds = ("path_held",) if state == "held" else ("path_down", "path_held")
    lost = [event for event in events if event["kind"] in kinds and event["nic"] == name]
    return f"to {lost[-1]['peer']}: {lost[-1]['detail']}" if lost else ""


class NicWatch:
    """Watches from `begin` to `end`. The callback runs on the watch's own thread; its exceptions are logged."""

    def __init__(self, rank: int, nets: Nets, on_nic: OnNic | None) -> None:
        self._rank, self._nets, self._on_nic = rank, nets, on_nic
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="r2ccl-nics", daemon=True)

    def begin(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def end(self) -> None:
        """Stops the thread. Idempotent."""
        self._ending.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(_LEAVE_S)  # a callback may not end

    def _watch(self) -> None:
        changes = Changes()
        while not self._ending.wait(_LOOK_S):
            for change in changes.update(self._nets.nics(), lambda: self._nets.stats()["events"]):
                self._tell(change)

    def _tell(self, change: NicChange) -> None:
        _log.log(logging.INFO if change.state == "up" else logging.WARNING, "rank %d: %s", self._rank, change)
        if self._on_nic is None:
            return
        try:
            self._on_nic(change)
        except Exception:
            _log.exception("rank %d: the callback for NICs failed", self._rank)
