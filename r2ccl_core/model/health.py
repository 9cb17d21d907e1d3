"""The remaining bandwidth of every host, as one value that all ranks share; and how a rank determines its own part.

Pure. All ranks agree on a `Health` (`agreement.py`) before any of them runs a schedule that depends on it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from r2ccl_core.model.topology import Host, Nic, Topology

RETURN_S = 0.3
"""A returning NIC counts again after this long, so that a flapping NIC does not make the group switch each time."""


@dataclass(frozen=True)
class Health:
    """Per host, the number of its NICs and the numbers of the lost ones; and how many ranks each host has.

    Rank r belongs to host ``r // gpus``. Ranks that share no NICs count as separate hosts.
    """

    nics: tuple[int, ...]
    lost: tuple[tuple[int, ...], ...]
    gpus: int = 1

    @classmethod
    def whole(cls, nics: Sequence[int], gpus: int = 1) -> "Health":
        """Nothing is lost."""
        return cls(tuple(nics), ((),) * len(nics), gpus)

    @property
    def nranks(self) -> int:
        """Ranks of all hosts."""
        return len(self.nics) * self.gpus

    @property
    def is_whole(self) -> bool:
        """Whether no NIC is lost."""
        return not any(self.lost)

    @property
    def shares(self) -> tuple[float, ...]:
        """Each host's bandwidth relative to the best host's nominal one."""
        return tuple((n - len(lost)) / max(self.nics) for n, lost in zip(self.nics, self.lost, strict=True))

    @property
    def usable(self) -> bool:
        """Whether every host has a NIC left; otherwise no schedule can help."""
        return min(self.shares) > 0

    def with_lost(self, host: int, lost: Iterable[int]) -> "Health":
        """This health, with the given NICs of `host` lost."""
        return replace(self, lost=(*self.lost[:host], tuple(sorted(lost)), *self.lost[host + 1 :]))

    def topology(self, nic_bytes_s: float) -> Topology:
        """The same for the planner. Every NIC carries `nic_bytes_s` in each direction and reaches only the NIC with its
        number on another host, as the transport pairs them."""

        def host(nics: int, lost: tuple[int, ...]) -> Host:
            left = (Nic(i, nic_bytes_s, remaining=0.0 if i in lost else 1.0) for i in range(nics))
            return Host(tuple(left), self.gpus)

        return Topology(tuple(map(host, self.nics, self.lost)), isolated_rails=True)

    def __str__(self) -> str:
        who = "rank" if self.gpus == 1 else "host"
        named = ((number, ", ".join(map(str, lost))) for number, lost in enumerate(self.lost) if lost)
        parts = [f"{who} {number} lost NIC {nics}" for number, nics in named]
        return "; ".join(parts) or "all NICs are up"


class OwnNics:
    """A rank's own NICs over time, from what the transport reports about their paths.

    A NIC is lost when none of its paths is up. A rank with two peers or more keeps a path to one of them when another's
    NIC is lost, so it does not mistake the other's loss for its own. With one peer both report a loss, which leaves
    their shares equal, as they then are. `works` lists the NICs that have a path that is up and are not lost: another
    rank of the host may know that a NIC works which this rank considers lost.
    """

    def __init__(self, nics: int) -> None:
        self.works: tuple[int, ...] = ()
        self._lost: set[int] = set()
        self._up_since_s: list[float | None] = [None] * nics

    def update(self, now_s: float, nics: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
        """The NICs that are lost now, given the transport's table of them."""
        for index, nic in enumerate(nics):
            if nic["paths_up"] == 0:
                self._up_since_s[index] = None
                if nic["paths_down"]:
                    self._lost.add(index)
                continue
            since_s = self._up_since_s[index]
            self._up_since_s[index] = since_s = now_s if since_s is None else since_s
            if now_s - since_s >= RETURN_S:
                self._lost.discard(index)
        self.works = tuple(i for i, nic in enumerate(nics) if nic["paths_up"] and i not in self._lost)
        return tuple(sorted(self._lost))
