"""Whose paths the cores' events are of: a NIC of one host, not every NIC of its name. Pure."""

from collections.abc import Mapping
from typing import Any

from reports.trial import Trial


class Ends:
    """The NICs at both ends of the paths of a trial. A core names its own NIC and the other end's address; only the
    NICs that its cores list tell whose that is, and only the clock measurements name the hosts, in the order of their
    ranks."""

    def __init__(self, trial: Trial) -> None:
        offsets = (trial.evidence.model_extra or {}).get("clock_offsets_ns")
        names = offsets if isinstance(offsets, dict) else {}
        self._hosts = {str(rank): str(host) for rank, host in enumerate(names)}
        self._nic_at = {
            str(nic.get("address")): (self._hosts.get(rank), nic.get("name"))
            for rank, core in trial.core.items()
            for nic in _listed(core)
        }

    def knows(self, host: str) -> bool:
        """Whether it is known which rank runs on `host`."""
        return host in self._hosts.values()

    def may_be_of(self, event: Mapping[str, Any], host: str, nic: str) -> bool:
        """Whether `event` is of this NIC, or of a path one of whose ends is; by the NIC's name alone where nothing
        else is known."""
        own = self._hosts.get(str(event.get("rank")))
        if not self.knows(host) or own is None:
            return event.get("nic") == nic
        if own == host or not event.get("peer"):
            return (own, event.get("nic")) == (host, nic)
        peer = self._nic_at.get(str(event["peer"]))
        return event.get("nic") == nic if peer is None else peer == (host, nic)


def _listed(core: Any) -> list[dict[str, Any]]:
    nics = core.get("nics") if isinstance(core, dict) else None
    return [nic for nic in nics if isinstance(nic, dict)] if isinstance(nics, list) else []
