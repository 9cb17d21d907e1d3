"""One injection in progress: armed in every place that it needs, injected, checked, healed."""

import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from faults.base import Order, PlotHint, Probe, Recipe, Sign, Target, severs
from faults.registry import FAULTS, create
from harness.errors import HostError
from harness.hosts.base import After, Host, Orders
from harness.hosts.each import all_results, for_each
from harness.sweep.judge import Injected
from harness.sweep.scenario import Injection
from harness.sweep.targets import asked
from harness.sweep.testbed import HostTestbed

PROBE_S = 10.0
GONE_S = 2.0
"""How long a fault's traces may stay visible after the heal."""
SHOWN_S = 0.5
"""How long a sign may take to show: on a busy machine a stopped rank must be scheduled once more before it stops."""


@dataclass
class Breakage:
    """The life of one injection; times are on the harness's clock."""

    testbed: HostTestbed
    injection: Injection
    arm_id: str
    targets: list[Target] = field(default_factory=list)
    armed: bool = False
    armed_whole: bool = True
    """Whether nothing else had broken its targets when they were looked up."""
    effect_ns: tuple[int, int] | None = None
    fired_ns: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The time of the commands on each place, on that place's own clock."""
    heal_from_ns: int | None = None
    heal_ns: int | None = None
    planned_ns: int | None = None
    """When the injection was due; None: by the bytes of its NIC."""
    places: list[str] = field(default_factory=list)
    """The places where it is armed."""
    unseen: list[str] = field(default_factory=list)
    """Signs that did not show during the fault."""
    left: list[str] = field(default_factory=list)
    """Signs that were still there after the heal."""
    boot: str = ""
    """The boot ID of the boot that a restart ends."""

    def arm(self, pids: Mapping[str, int], ttl_s: float) -> None:
        """Looks up the targets unless they are known, and arms a healer on every place before anything else happens."""
        self.targets = self.targets or asked(self.injection, self.testbed.data_nics, self.testbed.places, pids)
        fault = create(self.injection.kind, self.injection.parameters)
        recipes = [fault.recipe(target) for target in self.targets]
        by_place = {place: orders_on(place, recipes) for recipe in recipes for place in recipe.places}
        self.places = list(by_place) or [self.injection.host]
        self.boot = read_boot(self.testbed.host(self.injection.host)) if fault.restarts else ""
        self.armed = True
        hosts = [self.testbed.place(place) for place in self.places]
        all_results(for_each(hosts, lambda h: h.prepare(self.arm_id, by_place.get(h.name, Orders()), ttl_s)))

    def fire(self, after: After | None = None) -> None:
        """Injects on all places at once, then looks for the signs that commands can show."""
        hosts = [self.testbed.place(place) for place in self.places]
        self.fired_ns = all_results(for_each(hosts, lambda h: self._fire_on(h, after)))
        self.effect_ns = self._window_ns()
        injection = self.injection
        self.testbed.tell(
            "fault", {"kind": injection.kind, "host": injection.host, "nic": injection.nic, "t_ns": self.effect_ns[1]}
        )
        self.unseen = [f"{probe.order.place}: no {probe.while_faulted!r}" for probe in self._probes(during=True)]

    def heal(self) -> None:
        """Heals every place, even if one fails; harmless when repeated. Raises the first `HostError` at the end."""
        if not self.armed or self.heal_ns is not None:
            return
        self.heal_from_ns = time.time_ns()
        hosts = [self.testbed.place(place) for place in self.places]
        healed = all_results(for_each(hosts, lambda h: self._heal_on(h)))
        self.armed = False
        if self.effect_ns is not None:
            self.heal_ns = max((t_ns for t_ns in healed.values() if t_ns is not None), default=None)
            if FAULTS[self.injection.kind].stops_clock and self.heal_ns is not None:
                self.testbed.clock_stood_still(self.injection.host, self.effect_ns[1], self.heal_ns)
            self.left = [f"{probe.order.place}: still {probe.while_faulted!r}" for probe in self._probes(during=False)]

    def await_return(self) -> None:
        """After a restart: waits for the host, and checks that it did restart. Raises `HostError`."""
        if not self.boot or self.effect_ns is None:
            return
        host = self.testbed.reconnect(self.injection.host)
        if read_boot(host) == self.boot:
            self.unseen.append(f"{host.name}: no restart")

    def injected(self) -> Injected | None:
        """The injection as the judge sees it; None if it was never injected."""
        if self.effect_ns is None:
            return None
        # The clocks are known better now, if they were measured after the trial.
        self.effect_ns = self._window_ns()
        fault = create(self.injection.kind, self.injection.parameters)
        return Injected(
            kind=self.injection.kind,
            host=self.injection.host,
            nic=self.injection.nic if fault.scope == "nic" else "",
            t_before_ns=self.effect_ns[0],
            t_after_ns=self.effect_ns[1],
            heal_from_ns=self.heal_from_ns,
            heal_ns=self.heal_ns,
            aimed=self.injection.aimed,
            signs=self.signs(),
            unseen=tuple(self.unseen),
            left=tuple(self.left),
            planned_ns=self.planned_ns,
            lasts_ns=None if self.injection.lasts_s is None else int(self.injection.lasts_s * 1e9),
            clock_error_ns=self._clock_error_ns(self.effect_ns[0]),
            plot=self.plot(),
            nics=self._nics(),
            dark=severs([effect for target in self.targets for effect in fault.effects(target)]),
            sends=any(fault.recipe(target).beside for target in self.targets),
        )

    def plot(self) -> PlotHint | None:
        """The plot hint of the first target, with the number of targets that have another name; None without NICs."""
        if not self.targets:
            return None
        fault = create(self.injection.kind, self.injection.parameters)
        hint = fault.plot(self.targets[0])
        more = len({fault.plot(target).label for target in self.targets}) - 1
        return replace(hint, label=f"{hint.label} and {more} more") if more else hint

    def signs(self) -> tuple[Sign, ...]:
        """The signs of all targets."""
        fault = create(self.injection.kind, self.injection.parameters)
        return tuple(sign for target in self.targets for sign in fault.signs(target))

    def _nics(self) -> tuple[tuple[str, str], ...]:
        """Host and name of every NIC that was struck; a process stands for all NICs of its host."""
        if self.injection.scope == "process":
            return tuple((self.injection.host, nic.name) for nic in self.testbed.data_nics[self.injection.host])
        return tuple((target.host, target.nic) for target in self.targets)

    def _fire_on(self, host: Host, after: After | None) -> tuple[int, int]:
        mine = after if after and host.name == self.injection.host else None
        return host.fire(self.arm_id, mine)

    def _window_ns(self) -> tuple[int, int]:
        """From the first command on any place to the end of the last, on our clock."""
        ours = [tuple(map(self.testbed.clock(place).ours_ns, fired)) for place, fired in self.fired_ns.items()]
        return min(before for before, _ in ours), max(end for _, end in ours)

    def _clock_error_ns(self, at_ns: int) -> int:
        """The largest error of the clocks that gave the times, including that of the struck host's counters."""
        return max(self.testbed.clock(place).at(at_ns).error_ns for place in {*self.places, self.injection.host})

    def _heal_on(self, host: Host) -> int | None:
        healed_ns = host.heal(self.arm_id)
        return None if healed_ns is None else healed_ns - self.testbed.offset_ns(host.name)

    def _probes(self, *, during: bool) -> list[Probe]:
        """The probes whose output is wrong, and still wrong a moment later."""
        odd = []
        for probe in (sign for sign in self.signs() if isinstance(sign, Probe)):
            deadline = time.monotonic() + (SHOWN_S if during else GONE_S)
            while (shows := self._shows(probe)) != during and time.monotonic() < deadline:
                time.sleep(0.02)
            if shows != during:
                odd.append(probe)
        return odd

    def _shows(self, probe: Probe) -> bool:
        with suppress(HostError):
            done = self.testbed.place(probe.order.place).run(probe.order.argv, timeout_s=PROBE_S, check=False)
            return re.search(probe.while_faulted, done.stdout) is not None
        return False


def read_boot(host: Host) -> str:
    """The boot ID, which differs after every boot of the host's kernel."""
    return host.run(("cat", "/proc/sys/kernel/random/boot_id")).stdout.strip()


def orders_on(place: str, recipes: Sequence[Recipe]) -> Orders:
    """The combined commands of several recipes on one place."""
    return Orders(
        inject=_argvs(place, [order for recipe in recipes for order in recipe.inject]),
        heal=_argvs(place, [order for recipe in recipes for order in recipe.heal]),
        repeat=tuple((s, order.argv) for recipe in recipes for s, order in recipe.repeat if order.place == place),
        beside=_argvs(place, [order for recipe in recipes for order in recipe.beside]),
    )


def _argvs(place: str, orders: Sequence[Order]) -> tuple[tuple[str, ...], ...]:
    return tuple(dict.fromkeys(order.argv for order in orders if order.place == place))
