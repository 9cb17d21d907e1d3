"""The judge on facts made by hand: three ranks, iterations of 100 ms, a fault in the middle of the third."""

from dataclasses import replace
from typing import Any

import pytest

from faults.base import LinkDown, Quiet
from harness.events import RankError, RankRecord, Timed
from harness.hosts.base import Reading, Sample
from harness.sweep.judge import Facts, Injected, Judgement, _holds_down, judge, with_watch
from harness.sweep.phases import joined, phase_of
from harness.sweep.scenario import BUSIEST, Injection

MS = 1_000_000
PERIOD = 110 * MS
LENGTH = 100 * MS
STRUCK = 2
BEFORE = STRUCK * PERIOD + 30 * MS
AFTER = BEFORE + 2 * MS
HEAL = 6 * PERIOD


def rank_of(rank: int, iterations: int = 5) -> RankRecord:
    record = RankRecord(rank, ready_ns=-MS, done=True, returncode=0)
    for i in range(iterations):
        record.begun[i] = i * PERIOD
        record.finished[i] = Timed(i * PERIOD, LENGTH, 0)
    return record


def samples(leak: int = 0, up_at_end: bool = True) -> tuple[Sample, ...]:
    """10 ms counters: a MB a sample until the fault, then `leak` bytes once, up again after the heal."""
    taken, sent = [], 0
    for t_ns in range(0, HEAL + 50 * MS, 10 * MS):
        if t_ns < AFTER:
            sent += 1_000_000
        elif AFTER + 20 * MS <= t_ns < AFTER + 30 * MS:
            sent += leak
        down = AFTER <= t_ns < HEAL
        taken.append(Sample(t_ns, "eth1", sent, sent, (not down) if t_ns < HEAL else up_at_end))
    return tuple(taken)


SLACK_BYTES = 10_000
SIGNS = (LinkDown("host1", "eth1"), Quiet("host1", "eth1", "tx"), Quiet("host1", "eth1", "rx"))
FAULT = Injected("nic_down", "host1", "eth1", BEFORE, AFTER, HEAL, heal_from_ns=HEAL - MS, signs=SIGNS)
LASTED = HEAL - MS - AFTER
LEFT = 4 * PERIOD + LENGTH - BEFORE
"""From its effect to the end of the last iteration."""
SAMPLES = {"host1": samples()}


def survived(**changes: Any) -> Facts:
    return replace(
        Facts([rank_of(r) for r in range(3)], 5, "ok", fault_planned=True, injections=(FAULT,), samples=SAMPLES),
        **changes,
    )


def died(error_ns: int = BEFORE + MS, **changes: Any) -> Facts:
    ranks = [rank_of(r, STRUCK) for r in range(3)]
    for record in ranks:
        record.begun[STRUCK] = STRUCK * PERIOD
        record.done, record.returncode = False, 3
        record.error = RankError("connection lost", error_ns + record.rank * MS, STRUCK)
    facts = Facts(ranks, 5, "failed", fault_planned=True, injections=(FAULT,), samples=SAMPLES)
    return replace(facts, **changes)


def word(judgement: Judgement) -> tuple[str, bool]:
    return judgement.status, judgement.expected


def test_a_survivor_is_ok_with_its_evidence() -> None:
    judgement = judge(survived())
    assert word(judgement) == ("ok", True)
    assert judgement.reason == ""
    assert judgement.evidence.struck_iteration == STRUCK
    assert judgement.evidence.dead_nic_tx_after == 0
    assert judgement.evidence.healed is True


def test_a_healthy_trial_needs_no_evidence() -> None:
    judgement = judge(survived(fault_planned=False, injections=()))
    assert word(judgement) == ("ok", True)
    assert judgement.evidence.in_flight is None


def test_one_wrong_element_on_one_rank_is_wrong_even_when_the_rest_is_in_doubt() -> None:
    facts = survived(injections=(replace(FAULT, t_before_ns=STRUCK * PERIOD - 8 * MS, heal_ns=None),))
    facts.ranks[1].finished[4] = Timed(4 * PERIOD, LENGTH, 1)
    assert word(judge(facts)) == ("wrong", False)
    assert judge(facts).reason == "1 wrong element"


def test_wrong_is_worse_than_failed() -> None:
    facts = died()
    facts.ranks[0].finished[0] = Timed(0, LENGTH, 7)
    assert word(judge(facts)) == ("wrong", False)


def test_an_error_after_a_drawn_out_injection_came_at_most_so_late() -> None:
    drawn_out = replace(FAULT, t_before_ns=BEFORE - 15 * MS)
    reason = judge(died(injections=(drawn_out,))).reason
    assert reason == "rank 0: connection lost (at most 16 ms after the fault)"


def test_exit_status_1_without_a_wrong_element_is_a_failure() -> None:
    facts = survived()
    facts.ranks[2].returncode = 1
    assert word(judge(facts)) == ("failed", False)


def test_fail_stop_fails_as_expected_and_the_first_error_is_timed() -> None:
    judgement = judge(died())
    assert word(judgement) == ("failed", True)
    assert judgement.error is not None
    assert (judgement.error.rank, judgement.error.after_fault_ns) == (0, MS)
    assert judgement.reason == "rank 0: connection lost (1 ms after the fault)"
    told = died(hosts=("host0", "host1", "host2"))
    told.ranks[0].error = RankError("rank 0: connection lost", BEFORE + MS, STRUCK)
    assert judge(told).reason == "rank 0 (host0): connection lost (1 ms after the fault)", "the rank is named once"
    two_a_host = judge(died(hosts=("host0", "host1", "host2"), gpus=2))
    assert two_a_host.reason == "ranks 0-1 (host0): connection lost (1 ms after the fault)"


def test_a_survivor_where_failure_is_expected_is_unexpected() -> None:
    judgement = judge(survived(expect_on_fault="failed"))
    assert word(judgement) == ("ok", False)


def test_where_both_ends_are_expected_only_an_error_before_the_fault_is_not() -> None:
    assert word(judge(survived(expect_on_fault="either"))) == ("ok", True)
    assert word(judge(died(expect_on_fault="either"))) == ("failed", True)
    assert word(judge(died(expect_on_fault="either", error_ns=BEFORE - 50 * MS))) == ("failed", False)


def test_a_failure_of_a_system_that_should_survive_is_unexpected() -> None:
    assert word(judge(died(expect_on_fault="ok"))) == ("failed", False)


def test_ranks_that_called_different_things_are_no_failure_that_a_fault_was_to_cause() -> None:
    assert word(judge(died(expect_on_fault="failed"))) == ("failed", True), "the control"
    facts = died(expect_on_fault="failed")
    for record in facts.ranks:
        assert record.error is not None
        record.error = replace(record.error, kind="MismatchedCallError")
    assert word(judge(facts)) == ("failed", False)


def test_a_failure_that_should_not_be_is_no_retry_even_if_the_fault_missed() -> None:
    missed = replace(FAULT, t_before_ns=STRUCK * PERIOD - 8 * MS)
    assert word(judge(died(expect_on_fault="ok", injections=(missed,)))) == ("failed", False)


def test_an_expected_failure_without_proof_is_inconclusive() -> None:
    missed = replace(FAULT, t_before_ns=STRUCK * PERIOD - 8 * MS)
    assert judge(died(injections=(missed,))).status == "inconclusive"


def test_an_error_before_the_fault_is_unexpected() -> None:
    judgement = judge(died(error_ns=BEFORE - 50 * MS))
    assert word(judgement) == ("failed", False)
    assert judgement.reason.endswith("(before the fault)")


def test_an_error_with_the_fault_never_injected_is_unexpected() -> None:
    assert word(judge(died(injections=()))) == ("failed", False)


def test_a_hang_is_a_failure_that_nobody_expects() -> None:
    facts = died(hang="no rank said anything for 8 s")
    for record in facts.ranks:
        record.error, record.returncode = None, None
    judgement = judge(facts)
    assert word(judgement) == ("failed", False)
    assert judgement.reason == "no rank said anything for 8 s"


def test_a_hang_while_all_hosts_stood_still_proves_nothing() -> None:
    hang = "hang: no rank said anything for 10 s (sweep.limits.iteration)"
    silent = replace(died(hang=hang), ranks=[RankRecord(rank=rank) for rank in range(2)])
    assert judge(silent).status == "failed"
    judgement = judge(replace(silent, stalled_s=58.2))
    assert (judgement.status, judgement.expected) == ("inconclusive", False)
    assert judgement.reason == f"{hang}, but all hosts stood still for 58 s: other programs had the processors"
    assert judge(died(hang=hang, stalled_s=58.2)).status == "failed", "a rank's own error counts"


def test_a_limit_that_ended_ranks_which_went_on_is_no_failure_of_theirs() -> None:
    limit = "not over after 60 s, and ranks last said something 0.1 s before: raise sweep.limits.trial"
    ranks = [rank_of(r, 3) for r in range(3)]
    for record in ranks:
        record.done, record.returncode = False, None
    facts = survived(ranks=ranks, cut_off=limit)
    judgement = judge(facts)
    assert (word(judgement), judgement.reason) == (("inconclusive", False), limit)
    ranks[1].finished[2] = Timed(2 * PERIOD, LENGTH, 4)
    assert judge(facts).status == "wrong"
    ranks[1].finished[2] = Timed(2 * PERIOD, LENGTH, 0)
    ranks[1].error = RankError("connection lost", BEFORE + MS, 3)
    assert judge(facts).status == "failed", "what a rank said itself stays"


def test_a_crash_is_a_failure_that_nobody_expects_and_shows_its_last_words() -> None:
    facts = died()
    for record in facts.ranks:
        record.error = None
    facts.ranks[0].returncode = -11
    facts.ranks[0].log = ["[stderr] Segmentation fault"]
    judgement = judge(facts)
    assert word(judgement) == ("failed", False)
    assert judgement.reason == "rank 0: ended early with exit status -11: Segmentation fault"
    hosts = ["node7", "node8", "node9"]
    assert judge(replace(facts, hosts=hosts)).reason.startswith("rank 0 (node7): ended early")


def test_too_few_iterations_are_a_failure() -> None:
    judgement = judge(survived(ranks=[rank_of(0), rank_of(1, 4), rank_of(2)]))
    assert word(judgement) == ("failed", False)
    assert judgement.reason == "rank 1: ended after 4 of 5 iterations"


@pytest.mark.parametrize("clock_error_ns", [0, 12 * MS])
def test_samples_that_may_lie_outside_the_fault_do_not_count(clock_error_ns: int) -> None:
    """One stamped right before the heal may have been read after it; so may those within the clocks' error."""
    after = AFTER + clock_error_ns
    last = max(s.t_ns for s in samples() if s.t_ns < HEAL - MS - clock_error_ns)
    moving = [
        s if after <= s.t_ns < last else s._replace(tx_bytes=s.tx_bytes + i * SLACK_BYTES)
        for i, s in enumerate(samples())
    ]
    injection = replace(FAULT, clock_error_ns=clock_error_ns)
    assert word(judge(survived(injections=(injection,), samples={"host1": moving})))[0] == "ok"
    sooner = [s._replace(tx_bytes=s.tx_bytes + 2 * SLACK_BYTES) if s.t_ns == last - 10 * MS else s for s in samples()]
    assert judge(survived(injections=(injection,), samples={"host1": sooner})).reason.startswith(
        "host1 eth1 still carried"
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"injections": ()}, "the fault was never injected"),
        ({"injections": (replace(FAULT, t_before_ns=STRUCK * PERIOD - 8 * MS),)}, "the fault missed the collective"),
        ({"injections": (replace(FAULT, t_after_ns=STRUCK * PERIOD + LENGTH + 1),)}, "the fault missed the collective"),
        ({"samples": {"host1": samples(leak=SLACK_BYTES + 1)}}, "host1 eth1 still carried 10001 bytes"),
        ({"samples": {}}, "the counters of host1 eth1 do not cover the fault"),
        ({"injections": (replace(FAULT, heal_ns=None),)}, "host1 eth1 did not heal"),
        ({"samples": {"host1": samples(up_at_end=False)}}, "host1 eth1 did not heal"),
        ({"injections": (replace(FAULT, unseen=("switch: no 'pref'",)),)}, "switch: no 'pref'"),
        ({"injections": (replace(FAULT, left=("switch: still 'pref'",)),)}, "switch: still 'pref'"),
        ({"changed": ["host1: eth1 qdiscs: was tbf, is nothing"]}, "not as it was before: host1: eth1 qdiscs"),
        ({"samples": {"host1": [s._replace(up=True) for s in samples()]}}, "host1 eth1 kept its carrier"),
    ],
)
def test_doubts(changes: dict[str, Any], reason: str) -> None:
    judgement = judge(survived(**changes))
    assert word(judgement) == ("inconclusive", False)
    assert judgement.reason.startswith(reason)


def test_a_fault_after_the_last_iteration_names_the_remedy() -> None:
    over = 4 * PERIOD + LENGTH
    late = replace(FAULT, t_before_ns=over + 3 * MS, t_after_ns=over + 5 * MS)
    remedy = "a longer workload.min_duration adds iterations"
    judgement = judge(survived(injections=(late,), lengthen=remedy))
    told = "the fault missed the collective: the iterations were all over 5.0 ms before it had taken effect"
    assert judgement.reason == f"{told}; {remedy}"
    assert judge(survived(injections=(late,))).reason == told, "where no one key helps, none is named"
    between = replace(FAULT, t_before_ns=LENGTH + MS, t_after_ns=LENGTH + 2 * MS)
    assert "in flight on every rank" in judge(survived(injections=(between,), lengthen=remedy)).reason


@pytest.mark.parametrize("came_ns", [None, 4 * PERIOD + LENGTH + 2 * MS], ids=["never", "after the iterations"])
def test_a_further_failure_that_met_no_iteration_is_told_with_the_remedy(came_ns: int | None) -> None:
    first = Injection("nic_down", "host1", "eth1", aimed=True)
    over = 4 * PERIOD + LENGTH
    due = (first, Injection("nic_down", "host2", BUSIEST, offset_s=(over + 2 * MS - AFTER) / 1e9))
    came = [] if came_ns is None else [replace(FAULT, host="host2", t_before_ns=came_ns, signs=(), aimed=False)]
    judgement = judge(survived(injections=(FAULT, *came), due=due, lengthen="add iterations"))
    assert word(judgement) == ("inconclusive", False)
    assert judgement.reason == (
        f"nic_down of the busiest NIC of host2, due {due[1].offset_s:g} s after the first failure, never came during "
        "the iterations, which were all over 2.0 ms before; add iterations"
    )
    assert judge(survived(due=due[:1])).status == "ok", "a scenario of one failure"
    in_time = replace(FAULT, host="host2", t_before_ns=over - MS, signs=(), aimed=False)
    assert judge(survived(injections=(FAULT, in_time), due=due)).status == "ok"


@pytest.mark.parametrize(
    ("planned_ns", "lasts_ns", "told"),
    [
        (BEFORE - LASTED - MS, LASTED, f"came {(LASTED + MS) / MS:g} ms late"),
        (BEFORE - LASTED + MS, LASTED, None),
        (None, LASTED // 2 - MS, f"lasted {LASTED / MS:g} ms"),
        (None, LASTED // 2 + MS, None),
        (BEFORE - LEFT - MS, None, f"came {(LEFT + MS) / MS:.0f} ms late, {LEFT / MS:.0f} ms before the iterations"),
        (BEFORE - LEFT + MS, None, None),
        (None, None, None),
    ],
    ids=["late", "a little late", "long", "a little long", "late until the end", "until the end", "by bytes"],
)
def test_a_failure_far_from_its_time_is_another_scenario(
    planned_ns: int | None, lasts_ns: int | None, told: str | None
) -> None:
    made = replace(FAULT, planned_ns=planned_ns, lasts_ns=lasts_ns)
    judgement = judge(survived(injections=(made,)))
    assert word(judgement) == (("ok", True) if told is None else ("inconclusive", False))
    should = f", which should last {lasts_ns / 1e6:g} ms," if lasts_ns else ""
    assert not told or judgement.reason.startswith(f"failure 1 (nic_down of host1 eth1){should} {told}")
    assert judge(survived(injections=(made,), drawn=True)).status == "ok", "chance asks for no certain time"
    if told and lasts_ns:
        assert "; choose a longer lasts, or " in judgement.reason, "the table has no other key"
        again = judge(survived(injections=(made,), comes_again=True))
        assert "; choose a longer lasts and every, or " in again.reason


def test_a_failure_that_should_begin_within_another_one_does_not_come_after_it() -> None:
    healed_ns = AFTER + 50 * MS
    outer = replace(FAULT, heal_from_ns=healed_ns, heal_ns=healed_ns + MS, lasts_ns=50 * MS, signs=())
    for late, status in ((-2, "ok"), (2, "inconclusive")):
        came_ns = healed_ns + late * MS
        inner = replace(
            outer, t_before_ns=came_ns, t_after_ns=came_ns + MS, heal_from_ns=came_ns + 90 * MS,
            heal_ns=came_ns + 91 * MS, planned_ns=BEFORE + 20 * MS, lasts_ns=90 * MS,
        )  # fmt: skip
        judgement = judge(survived(injections=(outer, inner)))
        assert judgement.status == status, judgement.reason
        in_a_row = replace(inner, planned_ns=BEFORE + 51 * MS)
        assert judge(survived(injections=(outer, in_a_row))).status == "ok", "it should come after the heal"
    assert "after the heal of failure 1, within which it should begin" in judgement.reason


def test_a_heal_that_waited_for_the_end_of_ranks_with_an_error_is_no_doubt() -> None:
    made = replace(FAULT, lasts_ns=MS)
    assert judge(survived(injections=(made,))).status == "inconclusive"
    assert word(judge(died(injections=(made,)))) == ("failed", True)


def test_a_system_that_stopped_at_the_first_failure_needs_no_further_one() -> None:
    due = (Injection("nic_down", "host1", "eth1", aimed=True), Injection("nic_down", "host2", "eth2", offset_s=5.0))
    assert word(judge(died(due=due))) == ("failed", True)


def test_a_few_late_frames_are_no_doubt() -> None:
    assert judge(survived(samples={"host1": samples(leak=SLACK_BYTES)})).status == "ok"


def test_a_fault_without_signs_needs_no_counters() -> None:
    assert judge(survived(injections=(replace(FAULT, signs=()),), samples={})).status == "ok"


def test_a_slowed_nic_may_carry_what_its_rate_allows() -> None:
    slowed = Quiet("host1", "eth1", "tx", 10_000, rate_bytes_s=1e6)
    over_s = (HEAL - MS - AFTER) / 1e9
    for leak, status in ((int(1e6 * (over_s - 0.02)), "ok"), (int(1e6 * over_s) + 10_001, "inconclusive")):
        facts = survived(injections=(replace(FAULT, signs=(slowed,)),), samples={"host1": samples(leak=leak)})
        assert judge(facts).status == status


def test_of_failures_by_the_clock_one_must_hit_and_every_aimed_one() -> None:
    late = {"t_before_ns": HEAL - 3 * MS, "t_after_ns": HEAL - 2 * MS}
    missed = replace(FAULT, **late, nic="eth0", signs=(), aimed=False)
    assert judge(survived(injections=(replace(FAULT, aimed=False), missed))).status == "ok"
    assert judge(survived(injections=(missed,))).status == "inconclusive"
    assert judge(survived(injections=(FAULT, replace(missed, aimed=True)))).status == "inconclusive"


def test_a_killed_rank_is_no_finding_but_the_others_must_say_so() -> None:
    facts = died(killed=frozenset({1}), injections=(replace(FAULT, signs=()),))
    facts.ranks[1].error, facts.ranks[1].returncode = None, -9
    assert word(judge(facts)) == ("failed", True)
    for record in facts.ranks:
        record.error = None
    assert word(judge(facts)) == ("failed", False)


def test_one_rank_that_had_not_begun_means_missed() -> None:
    facts = survived()
    late = BEFORE + MS
    facts.ranks[2].begun[STRUCK] = late
    facts.ranks[2].finished[STRUCK] = Timed(late, LENGTH, 0)
    assert judge(facts).status == "inconclusive"


def test_phases_partition_the_iterations() -> None:
    ranks = [rank_of(r) for r in range(3)]
    ranks[0].finished[-1] = ranks[1].finished[-1] = ranks[2].finished[-1] = Timed(-PERIOD, LENGTH, None)
    phases = {i: phase_of(i, timed, [FAULT]) for i, timed in joined(ranks).items()}
    assert phases == {-1: "warmup", 0: "before", 1: "before", 2: "hit", 3: "after", 4: "after"}
    assert {phase_of(i, t, []) for i, t in joined(ranks).items() if i >= 0} == {"before"}


def test_the_evidence_says_when_the_heal_began() -> None:
    began = judge(survived(injections=(replace(FAULT, heal_from_ns=7),))).evidence.strikes[0]["heal_from_ns"]
    assert began == 7, "reports take the returns of paths since then for those that the heal let return"


def test_an_iteration_after_all_is_healed_is_repaired() -> None:
    ranks = [rank_of(r, 9) for r in range(3)]
    phases = {i: phase_of(i, timed, [FAULT]) for i, timed in joined(ranks).items()}
    assert [phases[i] for i in (1, 2, 5, 6, 7)] == ["before", "hit", "after", "repaired", "repaired"]


def test_an_iteration_that_straddles_the_effect_on_one_rank_is_hit() -> None:
    ranks = [rank_of(r) for r in range(3)]
    ranks[1].finished[1] = Timed(PERIOD, BEFORE - PERIOD + 1, 0)
    assert phase_of(1, joined(ranks)[1], [FAULT]) == "hit"


def test_an_iteration_that_one_rank_did_not_end_is_not_joined() -> None:
    assert list(joined([rank_of(0, 3), rank_of(1, 2)])) == [0, 1]


def test_time_that_a_hypervisor_took_is_told_and_changes_nothing() -> None:
    def stolen(*values: float | None) -> list[Reading]:
        others = [Reading(0, "cpu", "busy_share", 1.0)]
        return others + [Reading(t, "cpu", "steal_share", value) for t, value in enumerate(values)]

    judgement = judge(survived())
    told = with_watch(
        judgement, {"host0": stolen(0.0, 0.1), "host1": stolen(0.2, None, 0.6), "host2": []}, {"host2": "no"}
    )
    assert told.evidence.unwatched == {"host2": "no"}
    assert told.evidence.stolen_share == pytest.approx(0.4)
    assert replace(told, evidence=judgement.evidence) == judgement
    assert with_watch(judgement, {"host0": stolen(None)}, {}).evidence.stolen_share is None


# What the struck NIC carried ----------------------------------------------------------------------------------

WHOLE_BYTES = 20_000_000.0
"""Of each NIC in an iteration: `samples` has a MB every 10 ms, both ways."""


def counted(until_ns: int = AFTER, since_ns: int = 0, each: int = 1_000_000, up: bool = False) -> list[Sample]:
    """10 ms counters that grow by `each`, both ways, between two moments only."""
    taken, moved = [], 0
    for t_ns in range(0, HEAL + 50 * MS, 10 * MS):
        moved += each if since_ns <= t_ns < until_ns else 0
        taken.append(Sample(t_ns, "eth1", moved, moved, up or not AFTER <= t_ns < HEAL))
    return taken


def moving(fault: Injected = FAULT, taken: list[Sample] | None = None, **changes: Any) -> Facts:
    """Ranks that move data, so that the struck NIC's counters must show it."""
    struck = replace(fault, nics=(("host1", "eth1"),), dark=bool(fault.signs))
    found = {"host1": counted() if taken is None else taken}
    facts = survived(
        injections=(struck,), samples=found, hosts=("host0", "host1", "host2"), nic_bytes={"host1": WHOLE_BYTES}
    )
    return replace(facts, **changes)


SLOWED = replace(FAULT, kind="delay", signs=())
"""A fault after which the NIC goes on."""


def test_a_nic_that_carried_the_collective_was_hit() -> None:
    judgement = judge(moving())
    assert word(judgement) == ("ok", True)
    (found,) = judgement.evidence.strikes[0]["carried"]
    assert (found["host"], found["nic"], found["least_bytes"]) == ("host1", "eth1", 200_000)
    assert found["in_flight_bytes"] == 6_000_000, (
        "from 220 ms to 252 ms: three steps between samples that are surely inside"
    )
    assert 18_000_000 <= found["before_bytes"] <= 22_000_000, "an iteration every 110 ms"


@pytest.mark.parametrize("fault", [FAULT, SLOWED])
def test_a_nic_that_carried_nothing_was_not_hit_whatever_ranks_say(fault: Injected) -> None:
    idle = counted(each=0, up=not fault.signs)
    judgement = judge(moving(fault, idle))
    assert word(judgement) == ("inconclusive", False)
    assert judgement.reason == (
        "the fault hit an idle NIC: host1 eth1 carried 0 bytes in the collective that was in flight and 0 bytes in one "
        "before it"
    )
    aimed = judge(moving(fault, idle, aim='write nic = "busiest" instead of rail to hit one in use'))
    assert aimed.reason == judgement.reason + '; write nic = "busiest" instead of rail to hit one in use'
    assert judge(moving(fault, idle, nic_bytes={})).status == "ok", "where ranks move no data nothing is asked"


def test_an_expected_failure_with_an_idle_nic_proves_nothing() -> None:
    idle = moving(taken=counted(each=0))
    facts = died(injections=idle.injections, samples=idle.samples, hosts=idle.hosts, nic_bytes=idle.nic_bytes)
    assert judge(facts).reason.startswith("the fault hit an idle NIC")
    assert word(judge(replace(facts, samples={"host1": counted()}))) == ("failed", True)


def test_a_few_probes_are_no_use_of_a_nic() -> None:
    assert judge(moving(taken=counted(each=1_000))).status == "inconclusive"
    assert judge(moving(taken=counted(each=60_000))).status == "ok"


def test_a_nic_that_went_dark_at_once_is_judged_by_what_it_carried_before() -> None:
    begin = STRUCK * PERIOD
    early = replace(FAULT, t_before_ns=begin + MS, t_after_ns=begin + 2 * MS)
    dark = [s._replace(up=not begin <= s.t_ns < HEAL) for s in counted(until_ns=begin)]
    judgement = judge(moving(early, dark))
    assert word(judgement) == ("ok", True)
    assert judgement.evidence.strikes[0]["carried"][0]["in_flight_bytes"] == 0


def test_a_nic_that_could_go_on_must_carry_in_the_very_collective() -> None:
    """It was used before, and not by the collective that was in flight: its schedule left it idle."""
    assert judge(moving(SLOWED, counted(until_ns=STRUCK * PERIOD, up=True))).status == "inconclusive"
    after = counted(since_ns=AFTER + 10 * MS, until_ns=AFTER + 50 * MS, up=True)
    assert judge(moving(SLOWED, after)).status == "ok", "what it carried after the fault, but inside, counts"
    assert (
        judge(moving(SLOWED, counted(since_ns=(STRUCK + 1) * PERIOD, until_ns=HEAL, up=True))).status == "inconclusive"
    )


def second(**changes: Any) -> Facts:
    """A NIC that another fault hits 20 ms later, by the clock, while the collective is in flight."""
    (first,) = moving().injections
    later = replace(first, kind="loss", t_before_ns=BEFORE + 20 * MS, t_after_ns=AFTER + 20 * MS, aimed=False, signs=())
    return moving(injections=(first, replace(later, dark=False, **changes)))


def test_a_fault_on_a_nic_that_another_one_holds_down_hit_nothing() -> None:
    judgement = judge(second())
    assert word(judgement) == ("inconclusive", False)
    assert judgement.reason == "loss hit nothing: nic_down held host1 eth1 down by then; choose another NIC or time"
    elsewhere = second(nics=(("host1", "eth0"),), nic="eth0")
    assert judge(elsewhere).status == "ok", "no other fault explains that this NIC carried nothing"
    flapping = tuple(sign._replace(always=False) if isinstance(sign, LinkDown) else sign for sign in FAULT.signs)
    (first, later), facts = second().injections, second()
    comes_back = replace(facts, injections=(replace(first, signs=flapping), later))
    assert judge(comes_back).status == "ok"
    assert later.heal_from_ns is not None
    healed = replace(first, heal_from_ns=later.heal_from_ns - MS)
    assert judge(replace(facts, injections=(healed, later))).status == "ok", "the later fault outlives the first"
    silent = tuple(Quiet("host1", "eth1", direction) for direction in ("tx", "rx"))
    cut = replace(later, signs=first.signs)
    assert _holds_down(replace(first, signs=silent), later), "a silent link loses nothing more"
    assert not _holds_down(replace(first, signs=silent), cut), "a silent link may still lose its carrier"


def test_what_the_fault_itself_sends_is_no_sign() -> None:
    flooded = counted(since_ns=AFTER, until_ns=HEAL, up=True)
    facts = moving(SLOWED, flooded)
    assert judge(facts).status == "ok"
    sends = replace(facts, injections=(replace(facts.injections[0], sends=True),))
    assert judge(sends).reason.startswith("the fault hit an idle NIC")


def test_counters_that_do_not_cover_the_collective_prove_nothing() -> None:
    judgement = judge(moving(SLOWED, []))
    assert judgement.status == "inconclusive"
    assert (
        "the counters of host1 eth1 do not cover the collective that was in flight, nor those before it"
        in judgement.reason
    )


def test_of_several_nics_one_must_have_carried_and_all_are_told() -> None:
    both = (("host1", "eth0"), ("host1", "eth1"))
    idle = [s._replace(nic="eth0") for s in counted(each=0)]
    facts = moving()
    facts = replace(
        facts, injections=(replace(facts.injections[0], nics=both),), samples={"host1": [*counted(), *idle]}
    )
    judgement = judge(facts)
    assert judgement.status == "ok"
    assert [c["in_flight_bytes"] for c in judgement.evidence.strikes[0]["carried"]] == [0, 6_000_000]
    silent = [*counted(each=0), *idle]
    assert "host1 eth0 carried 0" in judge(replace(facts, samples={"host1": silent})).reason


def test_a_nic_that_is_made_again_counts_anew() -> None:
    gone = [s if s.t_ns < AFTER else s._replace(rx_bytes=-1, tx_bytes=-1, up=False) for s in counted()]
    again = [s if s.t_ns < HEAL else s._replace(rx_bytes=5, tx_bytes=5, up=True) for s in gone]
    facts = moving(replace(FAULT, signs=()), again)
    assert judge(replace(facts, injections=(replace(facts.injections[0], dark=True),))).status == "ok"
    (found,) = judge(facts).evidence.strikes[0]["carried"]
    assert found["in_flight_bytes"] == 6_000_000


def test_bytes_that_went_by_rdma_past_the_kernel_count() -> None:
    past = [s._replace(rx_bytes=0, tx_bytes=0, rdma_rx_bytes=s.rx_bytes, rdma_tx_bytes=s.tx_bytes) for s in counted()]
    assert judge(moving(taken=past)).status == "ok"


def test_a_rank_that_the_kernel_ended_for_lack_of_memory_is_the_cause() -> None:
    """The others say only that it is gone; and no fault is to be thanked for it."""
    hosts = ["host0", "host1", "host2"]
    facts = died(hosts=hosts, starved=frozenset({"host1"}))
    facts.ranks[1].error, facts.ranks[1].returncode = None, -9
    judgement = judge(facts)
    assert word(judgement) == ("failed", False)
    assert judgement.reason.startswith("rank 1 (host1): out of memory: the kernel ended it; give its host more, or")
    assert "; then rank 0 (host0): connection lost" in judgement.reason
    for record in facts.ranks:
        record.error = None
    assert judge(facts).reason.startswith("rank 0 (host0): ended early with exit status 3")
    facts.ranks[0].done = facts.ranks[2].done = True
    facts.ranks[0].returncode = facts.ranks[2].returncode = 0
    assert judge(facts).reason.startswith("rank 1 (host1): out of memory: the kernel ended it")
    # A rank that only a fault or the harness can have ended is told as before.
    assert "out of memory" not in judge(replace(facts, starved=frozenset())).reason
    assert "out of memory" not in judge(replace(facts, killed=frozenset({1}))).reason
