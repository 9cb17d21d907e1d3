"""A trial without hosts: the schedules that the runtime would run, timed by the simulator, judged like any other.

The simulated time begins at 0 with the first warm-up, and iterations follow each other without a gap. Before each
iteration, the same selection that ranks use (`r2ccl_core.planning.selection`) names its schedule for the health at that
time. The simulator runs that schedule while NICs are lost and come back, also in the middle of it. The results have the
form of ranks' reports, so the judge, the record and the reports are the same as for every trial.

Not simulated: processors, the time to notice a failure, the cost of a change of schedule, and faults that take no
bandwidth. Such faults show nothing here, and the trial is inconclusive.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from math import ceil

from faults.registry import FAULTS
from faults.simulated import Nics
from harness.backends.simulate import SIMULATE, compute_s_of, cost_of
from harness.events import RankError, RankRecord, Timed
from harness.hosts.base import Nic
from harness.sweep.expectation import Came, expected
from harness.sweep.judge import Facts, Injected, Judgement, judge
from harness.sweep.plan import Trial
from harness.sweep.record import record_of
from harness.sweep.scenario import injections
from harness.sweep.simulated_network import FOREVER_S, Network, Outage, health_of, outages_of, topology_of
from harness.sweep.trial import Outcome
from harness.sweep.trial_warnings import named_nics
from harness.workloads.base import Operation
from r2ccl_core.errors import R2cclError
from r2ccl_core.model.health import Health
from r2ccl_core.model.schedule import Schedule
from r2ccl_core.model.topology import Topology
from r2ccl_core.planning.bound import bound_s
from r2ccl_core.planning.selection import Cost, SchedulePolicy, Select, read_policy, selection
from r2ccl_core.planning.simulate import simulate
from reports import trial as stored


def is_simulated(trial: Trial) -> bool:
    """Whether the trial runs in the simulator instead of on hosts."""
    return trial.variant.experiment.backend_of(trial.system) == SIMULATE


def simulated_record(trial: Trial, attempt: int) -> stored.Trial:
    """The content of trial.json; `evidence.simulated` records that, and how, no byte was moved."""
    play = _Play(trial)
    play.run()
    facts = play.facts()
    outcome = Outcome(trial, attempt, facts, _with_doubt(judge(facts), play), {}, {}, 0.0, {}, {})
    record = record_of(outcome, trial.variant.experiment.workload)
    evidence = record.evidence.model_copy(update={"simulated": play.about()})
    return record.model_copy(update={"evidence": evidence})


def simulated_once(trial: Trial) -> tuple[stored.Trial, float]:
    """The record of its only attempt, and the seconds that it took."""
    began_s = time.monotonic()
    return simulated_record(trial, attempt=1), time.monotonic() - began_s


@lru_cache(maxsize=32)
def _selection(policy: SchedulePolicy) -> Select:
    """Cached from trial to trial, with the schedules that it has made."""
    return selection(policy)


@dataclass
class _Play:
    """One trial in progress: a clock, a network, and the ranks' reports so far."""

    trial: Trial
    now_s: float = 0.0
    begun: dict[int, int] = field(default_factory=dict)
    finished: dict[int, Timed] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    """The schedule of every iteration."""
    error: RankError | None = None
    _known: dict[tuple[int, int, Topology], tuple[Schedule, float]] = field(default_factory=dict)

    def run(self) -> None:
        """Runs every iteration, until all are done or one cannot be."""
        for number in range(-self.trial.warmup, self.trial.iterations):
            self.begun[number] = _ns(self.now_s)
            try:
                names, took_s = self._iteration(self.now_s)
            except R2cclError as error:
                self.error = RankError(str(error), _ns(self.now_s), number)
                return
            if (stop_s := self._stopped_s(self.now_s + took_s)) is not None:
                self.now_s = stop_s
                self.error = RankError("simulated: the first loss ends it", _ns(stop_s), number)
                return
            self.names[number] = names
            self.finished[number] = Timed(_ns(self.now_s), _ns(took_s), None)
            self.now_s += took_s

    def facts(self) -> Facts:
        """The reports that ranks would have made, for the judge."""
        hosts, came, fault = list(self.hosts), self.came, self.trial.fault
        killed = {hosts.index(o.injection.host) for o in came if FAULTS[o.injection.kind].kills}
        return Facts(
            ranks=[self._rank(rank) for rank in range(len(hosts))],
            iterations=self.trial.iterations,
            expect_on_fault=expected(
                self.trial, [Came(o.injection.kind, o.effects, o.injection.lasts_s) for o in came]
            ),
            fault_planned=fault is not None,
            injections=[self._injected(outage) for outage in came],
            due=[o.injection for o in self.network.outages] if fault is not None and not fault.by_chance else (),
            hosts=hosts,
            gpus=self.trial.variant.experiment.workload.gpus,
            killed=frozenset(killed),
            lengthen=self.trial.variant.experiment.workload.lengthen,
        )

    def about(self) -> dict[str, object]:
        """The parameters of the simulation; the bound is that of the network at the beginning of the last iteration."""
        last_s = max(self.begun.values(), default=0) / 1e9
        left = replace(self.network, hot_repair=False).at(last_s)
        return {
            "alpha_s": self.cost.alpha_s,
            "nic_bytes_s": self.cost.nic_bytes_s,
            "schedules": [f"from iteration {first}: {name}" for first, name in _runs(self.names)],
            "remaining": min(left.shares),
            "bound_s": sum(bound_s(o.collective, left.rates_bytes_s, o.vector_bytes) for o in self.operations),
        }

    @cached_property
    def hosts(self) -> dict[str, tuple[Nic, ...]]:
        """The data NICs of every host, in the order of their ranks."""
        return named_nics(self.trial.variant.experiment)

    @cached_property
    def cost(self) -> Cost:
        """The cost of a message, and the bandwidth of a NIC."""
        return cost_of(self.trial.variant.experiment)

    @cached_property
    def whole(self) -> tuple[Topology, Nics]:
        """The cluster without any fault."""
        rates = {(h, n.name): self.cost.nic_bytes_s for h, nics in self.hosts.items() for n in nics}
        return topology_of(self.hosts, rates, self.trial.variant.experiment.workload.gpus)

    @cached_property
    def network(self) -> Network:
        """The cluster over time."""
        topology, numbers = self.whole
        return Network(topology, numbers, self._outages(), hot_repair=self.trial.system.mode == 1)

    @property
    def came(self) -> list[Outage]:
        """The outages before the end."""
        return [outage for outage in self.network.outages if outage.begin_s <= self.now_s]

    @cached_property
    def compute_s(self) -> float:
        """Compute time of an iteration."""
        return compute_s_of(self.trial.variant.experiment)

    @cached_property
    def operations(self) -> Sequence[Operation]:
        """Operations of an iteration."""
        experiment = self.trial.variant.experiment
        return experiment.workload.operations(self.trial.size_bytes, experiment.nranks, self.compute_s)

    def _iteration(self, begin_s: float) -> tuple[str, float]:
        """Its schedules, and its duration from `begin_s` on: one operation after another, each from the time that it is
        ready, plus all of the computing."""
        names, end_s = [], begin_s
        for operation in self.operations:
            at_s = max(end_s, begin_s + operation.ready_s)
            schedule = self._schedule(operation, self._health(at_s))
            names.append(schedule.name)
            end_s = at_s + self._seconds(operation, schedule, at_s)
        return ", ".join(dict.fromkeys(names)), max(end_s - begin_s, self.compute_s)

    def _health(self, at_s: float) -> Health:
        """The health that the ranks know; if a host has no NIC left, no other schedule can help."""
        found = self.network.health(at_s)
        return found if found.usable else health_of(self.network.whole)

    def _schedule(self, operation: Operation, health: Health) -> Schedule:
        select = _selection(read_policy(self.trial.system.mode, self.trial.system.env))
        return select(operation.collective, operation.moved_bytes, health, self.cost, operation.root)

    def _seconds(self, operation: Operation, schedule: Schedule, begin_s: float) -> float:
        """The duration from `begin_s` on, including changes in the middle."""
        left = self.network.at(begin_s)
        undisturbed_s = self._undisturbed_s(operation, schedule, left) if min(left.rates_bytes_s) > 0 else FOREVER_S
        changes = self.network.changes(begin_s, begin_s + undisturbed_s)
        if not changes and undisturbed_s < FOREVER_S:
            return undisturbed_s
        return simulate(schedule, left, operation.vector_bytes, alpha_s=self.cost.alpha_s, changes=changes).seconds

    def _undisturbed_s(self, operation: Operation, schedule: Schedule, topology: Topology) -> float:
        key = operation.vector_bytes, id(schedule), topology
        if key not in self._known:
            timing = simulate(schedule, topology, operation.vector_bytes, alpha_s=self.cost.alpha_s)
            self._known[key] = schedule, timing.seconds
        return self._known[key][1]

    def _outages(self) -> tuple[Outage, ...]:
        trial, fault = self.trial, self.trial.fault
        if fault is None:
            return ()
        drawn = injections(fault, self.hosts, trial.seed, trial.variant.experiment.sweep.limits.trial_s)
        healthy_s = _Play(replace(trial, fault=None))._iteration(0.0)[1]
        into, number = 0.0, 0
        if drawn and drawn[0].aimed:
            into = fault.into if fault.after_bytes is None else fault.after_bytes
            chosen = trial.fault_iteration()
            number = ceil((fault.at_time_s or 0.0) / healthy_s) if chosen is None else chosen
        return outages_of(drawn, (trial.warmup + number + into) * healthy_s, self.hosts)

    def _stopped_s(self, end_s: float) -> float | None:
        """When the job ended before `end_s` because of a loss that the system does not survive; None if it did not."""
        fatal = [
            outage.begin_s
            for outage in self.network.outages
            if FAULTS[outage.injection.kind].kills or (outage.severs and self.trial.system.mode == 0)
        ]
        return min((begin_s for begin_s in fatal if begin_s < end_s), default=None)

    def _rank(self, rank: int) -> RankRecord:
        ended = self.error is None
        return RankRecord(
            rank,
            ready_ns=0,
            begun=dict(self.begun),
            finished=dict(self.finished),
            error=self.error,
            done=ended,
            returncode=0 if ended else 3,
        )

    def _injected(self, outage: Outage) -> Injected:
        injection, at_ns = outage.injection, _ns(outage.begin_s)
        nic = "" if injection.scope == "process" else injection.nic
        healed_ns = _ns(min(outage.end_s, self.now_s))
        return Injected(injection.kind, injection.host, nic, at_ns, at_ns, healed_ns, aimed=injection.aimed)


def _with_doubt(judgement: Judgement, play: _Play) -> Judgement:
    """The judgement; inconclusive if none of the faults can show in a simulation."""
    kinds = {outage.injection.kind for outage in play.came}
    blind = kinds and not any(e.rate_factor < 1 for outage in play.came for e in outage.effects)
    if judgement.status != "ok" or not blind or kinds == {"noop"}:
        return judgement
    reason = f"the simulator knows bandwidths only: {', '.join(sorted(kinds))} takes none"
    return replace(judgement, status="inconclusive", expected=False, reason=reason)


def _runs(names: dict[int, str]) -> Iterator[tuple[int, str]]:
    """Each schedule with the first iteration in a row that ran it."""
    before = ""
    for number, name in sorted(names.items()):
        if name != before:
            yield number, name
        before = name


def _ns(t_s: float) -> int:
    return round(t_s * 1e9)
