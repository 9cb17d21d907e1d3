"""One trial as metrics see it: its iterations by phase, its core's events, and its counters if they are read."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf, nan
from typing import TYPE_CHECKING, Any

from reports import stats
from reports.after import After, after, switched_back_ns
from reports.core_log import core_events
from reports.effect import counts
from reports.metrics import between
from reports.metrics.returned import SENDS_ON, Healed, healed_nics
from reports.setting import Setting
from reports.trial import Iteration, Phase, Trial

if TYPE_CHECKING:
    import pandas as pd

    from reports.recovery import Recovery
    from reports.traffic import HostBytes

LOSES_A_NIC = (
    "nic_down", "nic_unbind", "ib_port_down", "switch_port_down", "blackhole", "ovs_drop", "route_blackhole",
    "gid_removed",
)  # fmt: skip
"""Kinds of faults after which their NIC carries nothing until the heal."""

COMES_AND_GOES = ("flap",)
"""Kinds of faults whose NIC works at times before the heal."""

ONCE_HEALED = (
    "once everything is healed and its NIC carries again (of several the last one; where one does not before the trial "
    "ends, without it; where it does shortly before the end, of the one or two iterations that are left)"
)
"""What a speed after the repair is of."""

DOUBTFUL = 0.05
"""The share of the healthy time by which a fault may seem to save time."""

IF_HIT = "no value if several are, and the effect may lie anywhere in more than 10 ms and in half of their time or more"
"""When it is not known which iterations are hit (`reports.effect`)."""

DIFFER = "the iterations before the fault differ too much among themselves"
"""Why a mean is none to compare with, whichever way the cost then seems to err; every other reason makes it too low."""

SLOWER = "the iterations before the fault were slower than those after it"
"""Why the medians are none to compare with either."""

SLOWER_THAN_REPAIRED = "the iterations before the fault were slower than those after its repair"
"""Why the mean before the fault is none to compare with where both should be healthy."""

NO_TABLE: "Callable[[], pd.DataFrame | None]" = lambda: None  # noqa: E731 - a value, as its type says


@dataclass(frozen=True, eq=False)
class View:
    """A trial and the data beside it; derived values are computed once."""

    trial: Trial
    setting: Setting = field(default_factory=Setting)
    """The cluster that the trial ran on."""
    system: Mapping[str, Any] = field(default_factory=dict)
    """Its system as the experiment defines it."""
    counters: "Callable[[], pd.DataFrame | None]" = NO_TABLE
    """Reads the NICs' counters; None: there are none, or they are not requested."""
    fine_counters: "Callable[[], pd.DataFrame | None]" = NO_TABLE
    """The counters with every sample that was taken."""
    watched: "Callable[[], pd.DataFrame | None]" = NO_TABLE
    """The hosts' state."""

    @cached_property
    def events(self) -> Sequence[dict[str, Any]]:
        """The cores' events of a trial with a failure."""
        return core_events(self.trial) if self.trial.fault else []

    @cached_property
    def rest(self) -> After:
        """The iterations after the failure, with a schedule switch separated."""
        return after(self.trial, self.events)

    @cached_property
    def samples(self) -> "pd.DataFrame | None":
        """The NICs' counters."""
        return self.counters() if self.trial.iterations else None

    @cached_property
    def fine_samples(self) -> "pd.DataFrame | None":
        """The counters including the closely spaced samples right after a fault."""
        return self.fine_counters() if self.trial.iterations else None

    @cached_property
    def struck_rates(self) -> "pd.DataFrame | None":
        """What the NICs of the struck host sent between samples."""
        if self.trial.fault is None or self.fine_samples is None:
            return None
        from reports.recovery import throughput

        return throughput(self.fine_samples[self.fine_samples["host"] == self.trial.fault.host])

    @cached_property
    def effect_ns(self) -> float | None:
        """When the first failure took effect, by the NIC's counters; without any, when its injection was over."""
        fault = self.trial.fault
        if fault is None:
            return None
        if self.struck_rates is None:
            return float(fault.t_after_ns)
        from reports.recovery import effect_ns

        return effect_ns(self.struck_rates, fault.host, fault.nic, (fault.t_before_ns, fault.t_after_ns))

    @cached_property
    def recovery(self) -> "Recovery | None":
        """By the counters: from the fault's effect until the struck host again sends at its later speed."""
        trial, hit, rates = self.trial, self.in_phase("hit"), self.struck_rates
        later = [i for i in trial.iterations if i.phase == "after"]
        # Several failures cause several dips; only the first dip belongs to the first failure.
        if trial.fault is None or self.several or not hit or not later or trial.fault.kind in SENDS_ON:
            return None
        if rates is None or self.effect_ns is None:
            return None
        from reports.recovery import recovery

        span = later[0].t_ns, later[-1].t_ns + later[-1].duration_ns
        hit_end_ns = hit[-1].t_ns + hit[-1].duration_ns
        warmup, healthy = (
            [(i.t_ns, i.t_ns + i.duration_ns) for i in trial.iterations if i.phase in phases]
            for phases in (("warmup",), ("before", "hit"))
        )
        struck = trial.fault.host, trial.fault.nic
        next_end_ns = later[0].t_ns + later[0].duration_ns
        return recovery(rates, *struck, self.effect_ns, hit_end_ns, span, healthy, warmup, next_end_ns)

    @cached_property
    def loses_a_nic(self) -> bool:
        """Whether the failure is the one that models describe: one NIC of one host, gone until the heal."""
        fault = self.trial.fault
        return fault is not None and not self.several and fault.kind in LOSES_A_NIC and bool(fault.nic)

    @cached_property
    def by_rate(self) -> bool:
        """Whether the NICs' rate limits the trial's collective, so that limits, models and bounds by it apply."""
        trial = self.trial
        return trial.source == "simulated" or not self.setting.passes_in_burst(trial.collective, trial.size_bytes)

    @property
    def several(self) -> bool:
        """Whether its scenario has several failures, of which a trial that stopped had fewer."""
        planned = self.trial.evidence.several
        return len(self.trial.faults) > 1 if planned is None else planned

    @cached_property
    def comes_and_goes(self) -> bool:
        """Whether what breaks in its scenario works again in between: every such trial is judged as a whole, not by its
        first loss. Trials of older programs do not say, so their own failures tell."""
        planned, faults = self.trial.evidence.comes_and_goes, self.trial.faults
        if planned is not None:
            return planned
        last_ns = max((i.t_ns + i.duration_ns for i in self.trial.iterations if i.phase == "after"), default=0)
        healed = any(fault.heal_ns is not None and fault.heal_ns < last_ns for fault in faults)
        return (self.several and healed) or any(fault.kind in COMES_AND_GOES for fault in faults)

    @cached_property
    def since(self) -> Sequence[Iteration]:
        """Every iteration from the first hit one to the end of the trial."""
        return [i for i in self.trial.iterations if i.phase in ("hit", "after", "repaired")]

    @cached_property
    def received(self) -> "Sequence[HostBytes]":
        """The bytes that hosts received per collective, counted and by the schedule; empty if they were not counted."""
        if self.samples is None or self.samples.empty or self.trial.workload != "collective":
            return ()
        from reports import traffic

        found = traffic.counted(self.samples, self.watched(), self.trial, self.rest)
        if not found:
            return ()
        struck = self.trial.faults[0].host if self.loses_a_nic else None
        phases = {item.phase for item in found}
        planned = traffic.scheduled(self.trial, self.setting, self.system, struck)
        return (*found, *(item for item in planned if item.phase in phases))

    def in_phase(self, phase: Phase) -> Sequence[Iteration]:
        """The iterations that count as `phase`; after a failure, those that follow the schedule switch, and after
        several that stay, those that follow the last of them.

        If the fault comes and goes, all iterations count from the first failure until everything is healed, fast and
        slow ones. Repaired is what begins after that, once the healed NICs carry again; those that do not before the
        end are not waited for. Without an iteration that begins between failure and repair, none counts as after: the
        one that is hit would only say how long the failure was.
        """
        if phase == "after":
            return self._while_it_lasts if self.comes_and_goes else self._with_all_failures
        if phase == "repaired":
            return self._repaired
        return self._by_phase.get(phase, [])

    @cached_property
    def _with_all_failures(self) -> Sequence[Iteration]:
        last_ns = max((fault.t_after_ns for fault in self.trial.further_faults), default=0)
        return [i for i in self.rest.steady if i.t_ns >= last_ns]

    @cached_property
    def _while_it_lasts(self) -> Sequence[Iteration]:
        lasting = [i for i in self.since if i.phase != "repaired" or i.t_ns < self._healed_ns]
        return lasting if any(i.phase != "hit" for i in lasting) else []

    @cached_property
    def _healed_ns(self) -> float:
        """When everything was healed; infinite if something never was."""
        return max((inf if each.heal_ns is None else each.heal_ns for each in self.trial.faults), default=inf)

    @cached_property
    def until_repair(self) -> bool:
        """Whether it went on, but no iteration began between the failure and its repair."""
        hit = self._by_phase.get("hit", [])
        over = bool(hit) and hit[-1].t_ns + hit[-1].duration_ns >= self._healed_ns
        none = not self._by_phase.get("after") and (over or bool(self._repaired))
        return self.trial.status in ("ok", "wrong") and bool(hit) and none

    @property
    def to_be_repaired(self) -> bool:
        """Whether it went on in a fault that its scenario repairs."""
        return (
            bool(self.trial.faults) and self.trial.evidence.lasts_s is not None and self.trial.status in ("ok", "wrong")
        )

    @cached_property
    def cost_goes_on(self) -> bool:
        """Whether it went on, and ended before the cost of its fault was over, so that it saw only part of it: before a
        repair that its scenario has, or before the healed NIC carried again."""
        trial, fault = self.trial, self.trial.fault
        if fault is None or not self.to_be_repaired or not self.since:
            return False
        ended_ns = self.since[-1].t_ns + self.since[-1].duration_ns
        same = (one for one in trial.faults if (one.kind, one.host, one.nic) == (fault.kind, fault.host, fault.nic))
        return any(one.heal_ns is None or one.heal_ns >= ended_ns for one in same) or bool(self.nics_not_back)

    @cached_property
    def _repaired(self) -> Sequence[Iteration]:
        """Between failures that come and go, everything may be healed for a while; that is no repair."""
        items = [i for i in self._by_phase.get("repaired", []) if not self.comes_and_goes or i.t_ns >= self._healed_ns]
        back = [nic.heal_ns + nic.took_ns for nic in self.healed_nics if nic.took_ns is not None]
        return [i for i in items if i.t_ns >= max(back, default=0)]

    @cached_property
    def healed_nics(self) -> Sequence[Healed]:
        """Every struck NIC that was healed, and when it carried again."""
        return healed_nics(self.trial, self.events)

    @property
    def nics_not_back(self) -> Sequence[Healed]:
        """Those that did not carry again before the trial ended, although it went on after their heal."""
        return [nic for nic in self.healed_nics if nic.not_back]

    @property
    def back_in_part(self) -> bool:
        """Whether of each of these some paths carry again."""
        return bool(self.nics_not_back) and all(nic.in_part for nic in self.nics_not_back)

    @cached_property
    def _by_phase(self) -> dict[Phase, list[Iteration]]:
        found: dict[Phase, list[Iteration]] = {}
        for one in self.trial.iterations:
            found.setdefault(one.phase, []).append(one)
        return found

    def durations_ns(self, phase: Phase) -> list[float]:
        """The durations of the iterations of `phase`."""
        if phase not in self._durations_ns:
            self._durations_ns[phase] = [float(i.duration_ns) for i in self.in_phase(phase)]
        return self._durations_ns[phase]

    @cached_property
    def _durations_ns(self) -> dict[Phase, list[float]]:
        """Those asked for so far: many metrics ask for the same ones, and a trial may have 100,000."""
        return {}

    def usual_ns(self, phase: Phase) -> float:
        """The typical duration in `phase`; NaN if it has no iteration.

        That is the median (`reports.stats.typical`). Of several iterations that are hit it is the mean, since one of
        them may have stood still for all; nor does a median tell the fast and the slow ones after a fault that comes
        and goes. NaN as well where it is not known which are hit.
        """
        if phase == "hit" and not self.knows_hit:
            return nan
        durations = self.durations_ns(phase)
        averaged = phase == "hit" or (self.comes_and_goes and phase == "after")
        return stats.mean(durations) if averaged else stats.typical(durations)

    @cached_property
    def knows_hit(self) -> bool:
        """Whether those that count as hit were: several may have run healthily in the interval in which the effect may
        lie, so they count if together they are long enough for a time from the effect."""
        durations = self.durations_ns("hit")
        return len(durations) < 2 or counts(self.trial, sum(durations) / 1e6)

    def usual_gbs(self, phase: Phase) -> float | None:
        """The bus bandwidth of an iteration of the typical duration in `phase`; None if it has none."""
        items, usual_ns = self.in_phase(phase), self.usual_ns(phase)
        moved = stats.median(i.busbw_gbs * i.duration_ns for i in items if i.busbw_gbs is not None)
        return moved / usual_ns if usual_ns > 0 else None

    @cached_property
    def healthy_ns(self) -> float:
        """What the typical duration after the failure is compared with: the median before it, and the mean if the fault
        comes and goes, since on a busy machine the mean of the same iterations is above their median, and the ratio of
        a mean and a median would be a cost."""
        return self.healthy_mean_ns if self.comes_and_goes else self.usual_ns("before")

    @cached_property
    def lost_ns(self) -> float:
        """How much longer everything since the first failure took than as many healthy iterations, with what it stood
        still between two of them."""
        healthy_ns = len(self.since) * self.healthy_mean_ns
        until_ns = 0 if all(each.kind in LOSES_A_NIC for each in self.trial.faults) else self._healed_ns
        return sum(i.duration_ns for i in self.since) - healthy_ns + between.stood_ns(self.trial, until_ns)

    @cached_property
    def disturbed(self) -> str:
        """Why the mean of the healthy iterations is none to compare with: something else slowed them. Empty: it is one.

        Only a collective has as much to do after a failure as before it.
        """
        before = self.durations_ns("before")
        if not before or not self.since or not self.healthy_mean_ns:
            return ""
        count = len(self.since)
        most_doubt_ns = stats.MOST_ERROR * self.lost_ns
        if self._differ and count * stats.standard_error(before) > most_doubt_ns:
            return DIFFER
        faster = 1 - stats.mean(i.duration_ns for i in self.since) / self.healthy_mean_ns
        if self._gains_nothing and faster > DOUBTFUL:
            return "the iterations before the fault were slower than those with it"
        # The hit iteration may hide it in the mean, where the others are few or short.
        if self._medians_gain and count * (self.healthy_mean_ns - self.usual_ns("after")) > most_doubt_ns:
            return SLOWER
        # Where nothing can be gained, less than nothing lost is a doubt already.
        most_doubt_ns = max(0.0, most_doubt_ns) if self._gains_nothing else abs(most_doubt_ns)
        if self._repaired_gain_ns > most_doubt_ns:
            return SLOWER_THAN_REPAIRED
        return ""

    @cached_property
    def _healthy_again_ns(self) -> Sequence[int]:
        """The durations of iterations that do as much as those before the fault, by the same schedule and with every
        NIC: once everything is healed, its NIC carries again, and ranks that switched have switched back."""
        comparable = self.trial.workload == "collective" and self.trial.simulated is None
        if not comparable or self.nics_not_back:
            return []
        back_ns = switched_back_ns(self.trial, self.events)
        return [i.duration_ns for i in self.in_phase("repaired") if i.t_ns >= back_ns]

    @cached_property
    def _repaired_gain_ns(self) -> float:
        """By how much all iterations that are healthy again were faster than as many of those before the fault."""
        durations = self._healthy_again_ns
        return len(durations) * self.healthy_mean_ns - sum(durations) if durations else 0.0

    @cached_property
    def _differ(self) -> bool:
        """Whether the healthy iterations differ too much among themselves for their mean to say what healthy is: its
        standard error is more than `reports.stats.MOST_ERROR` of it. Of 27 trials with a flapping NIC on two busy
        cores, 8 of the 17 above that lost less than nothing, and 1 of the 10 below it. What was lost is known all the
        same where what the error amounts to is below the same share of it."""
        before = self.durations_ns("before")
        return len(before) > 2 and stats.standard_error(before) > stats.MOST_ERROR * self.healthy_mean_ns

    @cached_property
    def _gains_nothing(self) -> bool:
        """Whether a fault cannot make the iterations faster: as many bytes are to be moved, by the same schedule.

        The core logs a switch only if the schedule is another one. Many collectives and sizes keep theirs.
        """
        return self.trial.workload == "collective" and self.trial.simulated is None and self.rest.switch is None

    @cached_property
    def disturbed_slowdown(self) -> bool:
        """Whether T/T0 is not known either. Medians bear a few slow iterations, unless they say that a fault makes a
        collective faster. A mean bears that those before the fault were a little slower than those after the repair,
        however much that comes to in all of them."""
        if not self.in_phase("after"):
            return False
        if not self.comes_and_goes:
            return bool(self.slower_by_medians)
        healthy_ns = len(self._healthy_again_ns) * self.healthy_mean_ns
        a_little = self.disturbed == SLOWER_THAN_REPAIRED and self._repaired_gain_ns <= DOUBTFUL * healthy_ns
        return (bool(self.disturbed) and not a_little) or self._differ

    @property
    def reads_low(self) -> bool:
        """Whether the time lost is not known because it is too low, and not whatever it is."""
        return self.disturbed not in ("", DIFFER)

    @property
    def slowdown_reads_low(self) -> bool:
        """Whether the same is true of T/T0."""
        return self.reads_low if self.comes_and_goes else bool(self.slower_by_medians)

    @cached_property
    def slower_by_medians(self) -> str:
        """Why the median before the fault is too long for T/T0: it is above the one after, where a fault cannot save
        time, or above that of iterations that are healthy again, by more than a tenth of what one lost. Empty: it is
        not."""
        if self._medians_gain:
            return SLOWER
        if len(self._healthy_again_ns) < stats.MEDIAN_OF:
            return ""
        gain_ns = self.healthy_ns - stats.typical(self._healthy_again_ns)
        lost_ns = abs(self.usual_ns("after") - self.healthy_ns)
        is_slower = gain_ns > max(DOUBTFUL * self.healthy_ns, stats.MOST_ERROR * lost_ns)
        return SLOWER_THAN_REPAIRED if is_slower else ""

    @cached_property
    def _medians_gain(self) -> bool:
        """Whether T/T0 says that a fault makes the iterations faster although it cannot."""
        return self._gains_nothing and self.usual_ns("after") < (1 - DOUBTFUL) * self.healthy_ns

    @cached_property
    def healthy_mean_ns(self) -> float:
        """The mean duration before the first failure, with which totals are compared."""
        return stats.mean(self.durations_ns("before"))
