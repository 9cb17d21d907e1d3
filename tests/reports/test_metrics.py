"""The list of metrics: each is one record, each is defined once, and each value equals what the iterations say."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from harness.experiment.bounds import BoundModel, bound_mistakes
from harness.sweep.console import trial_line
from harness.sweep.summary import told
from reports import columns, machine, page, rows, tables
from reports.headline import headline
from reports.held_back import held_back
from reports.load import LoadedRun
from reports.measures import trial_frame
from reports.metrics import METRICS, cost
from reports.metrics.metric import Metric
from reports.metrics.view import View
from reports.not_back import not_back, not_back_within
from reports.recovery import Recovery
from reports.rules import Rules
from reports.trial import Evidence, Fault, Iteration, Phase, Run, Status, Trial

MS = 1_000_000


def trial(*phases: tuple[Phase, int], kind: str = "nic_down", status: Status = "ok", further: int = 0) -> Trial:
    """Iterations without gaps of so many ms each, of 1 GB/s at 10 ms; a fault where the first `hit` one begins."""
    iterations, at_ns, fault_ns = [], 0, None
    for number, (phase, ms) in enumerate(phases):
        fault_ns = at_ns if fault_ns is None and phase == "hit" else fault_ns
        iterations.append(
            Iteration(
                iteration=number, phase=phase, t_ns=at_ns, duration_ns=ms * MS, wrong=0, algbw_gbs=0, busbw_gbs=10 / ms
            )
        )
        at_ns += ms * MS
    fault = None if fault_ns is None else Fault(kind=kind, host="a", nic="b", t_before_ns=fault_ns, t_after_ns=fault_ns)
    return Trial(
        trial_id="t", system="s", mode=2, collective="all_reduce", size_bytes=1, dtype="float32", op="sum", place="out",
        scenario="x", repeat=0, attempt=1, status=status, expected=status == "ok", fault=fault,
        further_faults=(fault,) * further if fault else (), iterations=tuple(iterations),
    )  # fmt: skip


def healed(of: Trial, at_ms: int) -> Trial:
    assert of.fault is not None
    return of.model_copy(update={"fault": of.fault.model_copy(update={"heal_ns": at_ms * MS})})


LOSS = trial(("warmup", 90), *[("before", 10)] * 3, ("hit", 40), *[("after", 15)] * 4)
FLAP = trial(*[("before", 10)] * 3, ("hit", 40), ("after", 30), ("after", 10), ("after", 30), kind="flap")
CUT = trial(*[("before", 10)] * 3, ("hit", 40), ("after", 15)).model_copy(update={"evidence": Evidence(lasts_s=0.4)})
EVERY_FOURTH = 20 * (10, 50, 10, 10)
STILL = (*[("before", 10)] * 3, ("hit", 1000), *[("repaired", 10)] * 8)
"""The iteration that is hit lasts until the repair, at 1020 ms, and everything is as it was from then on."""
BACK = (*[("before", 10)] * 3, ("hit", 40), ("after", 20), *[("repaired", 10)] * 6)
NOISY = [("before" if at < 80 else "hit" if at == 80 else "after", ms) for at, ms in enumerate(2 * EVERY_FOURTH)]
NOISY_FLAP, NOISY_LOSS = trial(*NOISY, kind="flap"), trial(*NOISY)
"""A busy machine delays every fourth iteration, and the fault costs nothing."""
SCATTERED = [("before", 10), ("before", 50), ("before", 10), ("before", 10), ("hit", 40), ("after", 40)]
STOOD = [*SCATTERED[:4], ("hit", 1000), *[("after", 40)] * 3]
SLOWED = [*[("before", 20)] * 4, ("hit", 15), ("after", 15), ("after", 15)]
"""Something else slowed one of four healthy iterations, and all of them."""


def value(name: str, of: Trial) -> float | None:
    return METRICS[name].value(View(of))


@pytest.mark.parametrize(
    ("name", "of", "expected"),
    [
        ("before_gbs", LOSS, 1.0),
        ("after_gbs", LOSS, 10 / 15),
        ("slowdown", LOSS, 1.5),
        ("hit_cost_ms", LOSS, 25),
        # Five iterations from the hit one on took 100 ms, five healthy ones take 50.
        ("lost_ms", LOSS, 50),
        ("lost_share", LOSS, 1.0),
        ("mean_ms", LOSS, 20),
        ("p99_ms", LOSS, 39),
        ("wrong", LOSS, 0),
        # What comes and goes is judged over all that follows: the median of the iterations after it would say 3.
        ("slowdown", FLAP, 2.75),
        ("after_gbs", FLAP, 4 * 10 / 110),
        ("lost_ms", FLAP, 70),
        # One iteration that stood still is no speed of those that follow the repair, however many there are.
        ("after_gbs", healed(trial(*STILL, kind="flap"), 1020), None),
        ("slowdown", healed(trial(*STILL, kind="flap"), 1020), None),
        ("repaired_gbs", healed(trial(*STILL, kind="flap"), 1020), 1.0),
        ("lost_ms", healed(trial(*STILL, kind="flap"), 1020), 990),
        ("slowdown", healed(trial(*BACK, kind="flap"), 90), 3),
        ("repaired_gbs", healed(trial(*BACK, kind="flap"), 90), 1.0),
        # Healthy for a while between two failures is no repair.
        ("slowdown", healed(trial(*BACK, kind="flap"), 110), 2),
        ("hit_cost_ms", FLAP, None),
        ("stall_ms", FLAP, None),
        # As many slow iterations before the fault as after it: nothing was lost, although they hide from a median.
        ("slowdown", NOISY_FLAP, 1.0),
        ("lost_ms", NOISY_FLAP, 0),
        # Healthy is one statistic, whatever the fault: who is fastest healthy is answered from it.
        ("before_gbs", NOISY_FLAP, 1.0),
        ("after_gbs", NOISY_FLAP, 0.5),
        ("before_ms", NOISY_FLAP, 10),
        ("slowdown", NOISY_LOSS, 1.0),
        ("before_gbs", NOISY_LOSS, 1.0),
        ("lost_ms", NOISY_LOSS, 0),
        ("lost_share", NOISY_LOSS, 0),
        # Nobody knows what was lost against healthy iterations that something else slowed; medians still count.
        ("lost_ms", trial(*SCATTERED), None),
        ("lost_share", trial(*SLOWED), None),
        ("slowdown", trial(*SCATTERED), 4.0),
        ("slowdown", trial(*SLOWED), None),  # 0.75, but no fault makes a collective faster
        ("slowdown", trial(*SLOWED, kind="flap"), None),
        ("mean_ms", trial(*SLOWED, kind="flap"), 15),
        # What is lost by far is known; as a share of such iterations it is T/T0 - 1 where a fault comes and goes.
        ("lost_ms", trial(*STOOD, kind="flap"), 1040),
        ("slowdown", trial(*STOOD, kind="flap"), None),
        ("lost_share", trial(*STOOD, kind="flap"), None),
        ("lost_share", trial(*STOOD), 13),
        ("lost_ms", trial(*SLOWED[3:]), None),
        ("lost_ms", trial(*[("before", 10)] * 3), None),
        ("lost_ms", trial(("hit", 40), ("after", 15)), None),
        ("slowdown", trial(("hit", 40), ("after", 15)), None),
        ("slowdown", trial(("before", 10), ("hit", 40)), None),
        # It stopped: an iteration that it still ended after the fault says nothing of how it went on.
        ("slowdown", trial(("before", 10), ("hit", 40), ("after", 30), status="failed"), None),
        ("lost_ms", trial(("before", 10), ("hit", 40), ("after", 30), status="failed"), None),
        ("before_ms", trial(("before", 10), ("hit", 40), status="failed"), 10),
        ("repaired_gbs", trial(("before", 10), ("hit", 40), ("repaired", 20), status="failed"), None),
        ("repaired_gbs", trial(("before", 10), ("hit", 40), ("repaired", 20)), 0.5),
    ],
)
def test_a_value_is_what_the_iterations_say(name: str, of: Trial, expected: float | None) -> None:
    found = value(name, of)
    assert found == (None if expected is None else pytest.approx(expected))


def test_nothing_is_noticed_later_than_traffic_was_back() -> None:
    """A black hole read as noticed after 80 ms and recovered from after 32: older cores did not tell of the copies."""

    class Counted(View):
        recovery = Recovery(32.0 * MS, 33.0 * MS)  # type: ignore[assignment]

    black_hole = logged((80, "path_down", "b"), (82, "migrated", "b"))
    assert [METRICS[name].value(Counted(black_hole)) for name in ("detect_ms", "migrate_ms")] == [32, 32]
    assert METRICS["detect_ms"].value(Counted(logged((12, "path_down", "b")))) == 12
    assert METRICS["detect_ms"].value(Counted(logged())) is None, "no core told anything"


def test_traffic_that_did_not_stop_for_sure_was_down_until_the_loss_was_noticed_at_most() -> None:
    """A black hole read as recovered from after 20 ms at most and noticed after 82."""

    class Counted(View):
        recovery = Recovery(0.0, 20.0 * MS, by_mean=True)  # type: ignore[assignment]

    at_most = METRICS["recover_most_ms"]
    assert at_most.value(Counted(logged((82, "path_down", "b")))) == 82
    assert at_most.value(Counted(logged((12, "path_down", "b")))) == 20
    assert (
        at_most.value(Counted(logged((56, "link_up", "b"), (60, "path_returned", "b"), (82, "path_down", "b")))) == 20
    )
    assert at_most.value(Counted(logged())) == 20


def test_a_share_lost_that_is_not_known_is_counted_as_such() -> None:
    metric = METRICS["lost_share"]
    frame = pd.DataFrame({
        "lost_share": [None, None, None, 0.5], "disturbed": ["", "", "slowed", ""],
        "comes_and_goes": [True, False, False, True], "disturbed_slowdown": [True, True, False, False],
    })  # fmt: skip
    assert metric.not_known(frame).tolist() == [True, False, True, False]
    assert told([trial(*STOOD, kind="flap")], [metric, METRICS["lost_ms"]]) == {"lost_ms": pytest.approx(1040)}


def logged(*events: tuple[int, str, str], further: int = 0) -> Trial:
    """A flap of NIC b that takes effect at 30 ms, and what a core logged, by its ms since then, kind and NIC."""
    flap = trial(*[("before", 10)] * 3, ("hit", 40), ("after", 80), kind="flap", further=further)
    told = [{"t_ns": (30 + ms) * MS, "kind": kind, "nic": nic} for ms, kind, nic in events]
    return flap.model_copy(update={"core": {"0": {"events": told}}})


LOST = ((1, "link_down", "b"), (2, "path_down", "b"))
AGAIN = ((56, "link_up", "b"), (60, "path_returned", "b"), (110, "link_down", "b"), (111, "path_down", "b"))


@pytest.mark.parametrize(
    ("of", "detect", "migrate"),
    [
        (logged(*LOST, (3, "migrated", "b"), *AGAIN, (112, "migrated", "b")), 2, 3),
        # Nothing was to be moved at the first loss, and the second is another one.
        (logged(*LOST, *AGAIN, (112, "migrated", "b")), 2, None),
        (logged(*LOST, (4, "link_up", "b"), (6, "link_down", "b"), (7, "migrated", "b")), 2, None),
        # Its paths are still lost while the link is up again; and another NIC's return says nothing of this one.
        (logged(*LOST, (4, "link_up", "b"), (5, "migrated", "b"), (60, "path_returned", "b")), 2, 5),
        (logged(*LOST, (3, "path_returned", "c"), (5, "migrated", "b")), 2, 5),
        # What moved off another NIC is of that one's failure.
        (logged(*LOST, (4, "migrated", "c"), (5, "path_down", "c")), 2, None),
        # In a black hole what is late goes over other NICs long before the path is given up.
        (logged((33, "copied", "b"), (80, "path_held", "b"), (85, "path_down", "b"), (85, "migrated", "b")), 33, 33),
        (logged((80, "path_held", "b"), (85, "path_down", "b"), (85, "migrated", "b")), 80, 85),
        # A loss that nobody noticed.
        (logged(*AGAIN, (112, "migrated", "b")), None, None),
    ],
)
def test_noticing_and_moving_are_of_the_first_loss(of: Trial, detect: float | None, migrate: float | None) -> None:
    assert (value("detect_ms", of), value("migrate_ms", of)) == (detect, migrate)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([(61, "path_returned", "b"), (62, "path_returned", "b")], 1),
        ([(20, "path_returned", "b"), (61, "path_returned", "c")], None),
        # The receivers tell the returns of paths that the senders hold back.
        (
            [(61, "path_returned", "b"), (62, "path_held", "b"), (67, "path_returned", "b"), (68, "path_held", "b")],
            None,
        ),
        ([(61, "path_returned", "b"), (62, "path_held", "b"), (90, "path_returned", "b")], 30),
        ([(61, "path_returned", "b"), (62, "path_held", "c")], 1),
        (
            [(20, "path_returned", "b"), (61, "path_down", "b"), (63, "path_returned", "b"), (70, "path_down", "b"),
             (80, "path_held", "b")],
            3,
        ),
        # Every connection has a path of its own between the same two ends.
        ([(3, "path_down", "b"), (61, "path_returned", "b"), (80, "path_returned", "b")], 20),
        ([(3, "path_down", "b"), (61, "path_returned", "b")], None),
        ([(3, "path_down", "b"), (61, "path_returned", "b"), (63, "path_down", "b"), (80, "path_returned", "b"),
          (85, "path_returned", "b")], 25),
    ],
)  # fmt: skip
def test_a_nic_that_is_held_back_carries_again_when_the_hold_is_over(
    events: list[tuple[int, str, str]], expected: float | None
) -> None:
    of = logged(*LOST, *events)
    assert of.fault is not None
    healed = of.model_copy(update={"fault": of.fault.model_copy(update={"heal_ns": 90 * MS})})
    assert value("return_ms", healed) == expected


@pytest.mark.parametrize(
    ("events", "heal_from_ms", "expected"),
    [
        ([(56, "link_up", "b"), (58, "path_returned", "b")], None, 0),
        # A path that takes longer is not the first; another loss is another one.
        ([(56, "link_up", "b"), (58, "path_returned", "b"), (75, "path_returned", "b")], None, 0),
        ([(56, "link_up", "b"), (58, "path_returned", "b"), (75, "path_down", "b"), (90, "path_held", "b")], None, 0),
        # No link comes up when a black hole ends: a path that returns before the heal began is lost again when used.
        ([(58, "path_returned", "b")], 55, 0),
        ([(50, "path_returned", "b"), (75, "path_returned", "b")], 55, 15),
        ([(58, "path_returned", "b"), (75, "path_returned", "b")], None, 15),  # when it began was not stored
        # Held back, or lost once more, before the heal was over.
        ([(56, "link_up", "b"), (58, "path_returned", "b"), (59, "path_held", "b")], None, None),
        ([(58, "path_returned", "b"), (59, "path_held", "b"), (90, "path_returned", "b")], 55, 30),
        ([(58, "path_returned", "b"), (59, "path_down", "b"), (64, "path_returned", "b")], 55, 4),
        # The core sees the last loss of a flap only when the heal is over.
        (
            [(20, "link_up", "b"), (21, "path_returned", "b"), (61, "link_down", "b"), (62, "path_down", "b"),
             (63, "link_up", "b"), (65, "path_returned", "b")],
            None, 5,
        ),
    ],
)  # fmt: skip
def test_a_nic_that_carries_when_the_heal_is_over_returned_at_once(
    events: list[tuple[int, str, str]], heal_from_ms: int | None, expected: float | None
) -> None:
    of = logged(*LOST, *events)
    assert of.fault is not None
    began = () if heal_from_ms is None else ({"heal_from_ns": (30 + heal_from_ms) * MS},)
    healed = of.model_copy(
        update={
            "fault": of.fault.model_copy(update={"heal_ns": 90 * MS}),
            "evidence": Evidence(strikes=began),
        }
    )
    assert value("return_ms", healed) == expected
    assert METRICS["return_ms"].exceeds(View(healed)) == (None if expected is not None else 60)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([(20, "path_held", "p"), (40, "path_returned", "p")], 0),  # it passed its probation while it was still slow
        ([(20, "path_held", "p"), (40, "path_returned", "p"), (50, "path_held", "p")], None),  # once more, to the end
        ([(20, "path_held", "p"), (30, "path_held", "q"), (40, "path_returned", "p"), (75, "path_returned", "q")], 15),
        ([(20, "path_held", "p"), (25, "path_down", "p"), (40, "path_returned", "p")], 0),  # lost, and back while slow
        ([(20, "path_down", "p"), (25, "path_held", "q"), (40, "path_returned", "p"), (75, "path_returned", "q")], 15),
    ],
)
def test_a_slow_nic_whose_probation_was_over_before_the_heal_began_carried_at_the_heal(
    events: list[tuple[int, str, str]], expected: float | None
) -> None:
    """No path returns once the heal began: it was told as not back although it sent all the time."""
    of = logged()
    told = [
        {"t_ns": (30 + ms) * MS, "kind": kind, "nic": "b", "peer": peer, "cause": "probation"}
        for ms, kind, peer in events
    ]
    assert of.fault is not None
    healed = of.fault.model_copy(update={"kind": "rate_limit", "heal_ns": 90 * MS})
    evidence = Evidence(strikes=({"heal_from_ns": 85 * MS},))
    slow = of.model_copy(update={"fault": healed, "evidence": evidence, "core": {"0": {"events": told}}})
    assert value("return_ms", slow) == expected
    assert METRICS["return_ms"].exceeds(View(slow)) == (None if expected is not None else 60)


@pytest.mark.parametrize(("later", "expected"), [([], None), ([("0", 110, "path_returned")], 50)])
def test_a_return_that_the_other_end_of_a_held_path_tells_is_none(
    later: list[tuple[str, int, str]], expected: float | None
) -> None:
    """The NIC carried nothing to the end of the trial, and its return was told."""
    of = logged(*LOST)
    assert of.fault is not None
    told = [("0", 55, "path_held"), ("1", 70, "path_returned"), *later]
    core: dict[str, Any] = {"0": {"events": []}, "1": {"events": []}}
    for rank, ms, kind in sorted(told, key=lambda one: one[1]):
        core[rank]["events"].append(
            {"t_ns": (30 + ms) * MS, "kind": kind, "nic": "b", "peer": "p", "cause": "flapping"}
        )
    healed = of.model_copy(update={"fault": of.fault.model_copy(update={"heal_ns": 90 * MS}), "core": core})
    assert value("return_ms", healed) == expected


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        # A path that is held because it was lost too often is lost once more: it is still one path.
        ([(2, "path_down", "p"), (50, "path_held", "p"), (55, "path_down", "p"), (61, "path_returned", "p")], 1),
        # A detour over another path makes way for the second of two connections.
        ([(2, "path_down", "p"), (3, "path_down", "p"), (30, "path_returned", "q"), (61, "path_returned", "p"),
          (62, "path_down", "q"), (65, "path_returned", "p")], 5),
        ([(2, "path_down", "p"), (3, "path_down", "q"), (61, "path_returned", "p"), (65, "path_returned", "q")], 5),
    ],
)  # fmt: skip
def test_a_nic_is_back_once_every_path_that_was_lost_has_returned(
    events: list[tuple[int, str, str]], expected: float
) -> None:
    told = [
        {"t_ns": (30 + ms) * MS, "kind": kind, "nic": "b", "peer": peer, "cause": "flapping"}
        for ms, kind, peer in events
    ]
    assert value("return_ms", healed(logged(), 90).model_copy(update={"core": {"0": {"events": told}}})) == expected


@pytest.mark.parametrize(
    ("returned", "in_part"),
    [
        ([("0", "ip-b"), ("1", "ip-a")], True),  # one of two connections
        ([("0", "ip-b")], False),  # its other end has not told the return
        ([], False),
    ],
)
def test_a_nic_of_which_some_paths_return_is_back_in_part(returned: list[tuple[str, str]], in_part: bool) -> None:
    """It was told as back, and what followed as *repaired*, while it sent 1 Mbit/s: half the speed stood there."""
    of = logged()
    core: dict[str, Any] = {
        rank: {
            "nics": [{"name": "b", "address": own}],
            "events": [{"t_ns": ms * MS, "kind": "path_down", "nic": "b", "peer": peer} for ms in (32, 33)],
        }
        for rank, own, peer in (("0", "ip-a", "ip-b"), ("1", "ip-b", "ip-a"))
    }
    for rank, peer in returned:
        core[rank]["events"].append({"t_ns": 100 * MS, "kind": "path_returned", "nic": "b", "peer": peer})
    last = of.iterations[-1].model_copy(update={"phase": "repaired", "t_ns": 95 * MS, "duration_ns": 55 * MS})
    one = healed(of, 90).model_copy(update={"core": core, "iterations": (*of.iterations[:-1], last)})
    assert value("return_ms", one) is None and METRICS["return_ms"].exceeds(View(one)) == 60
    assert not_back_within(one) == f"b {'back in part only' if in_part else 'not back'} within 60 ms"
    told = not_back([one])
    assert ("Did not carry again before the trial ended: some paths of a b, while others did, by s" in told) == in_part
    assert ("speeds" in told.lower()) and ("without what did not" in told) == in_part


@pytest.mark.parametrize(
    ("events", "returned", "exceeds"),
    [
        ([(45, "path_returned")], 0, None),  # no path was in use at the second fault
        ([(45, "path_returned"), (52, "path_down")], None, 40),
        ([(45, "path_returned"), (52, "path_down"), (85, "path_returned")], 15, None),
        ([(45, "path_returned"), (52, "path_down"), (72, "path_held")], None, 40),
        ([(45, "path_returned"), (52, "path_down"), (72, "path_held"), (100, "path_returned")], 30, None),
        ([(55, "path_returned")], None, 40),  # the second fault has it
    ],
)
def test_a_nic_that_is_struck_twice_returns_after_its_last_heal(
    events: list[tuple[int, str]], returned: float | None, exceeds: float | None
) -> None:
    """It was held back to the end after its third loss, and its return after the first was told, and half the speed as
    that of a NIC that carries again."""
    of = logged((2, "path_down", "b"), *((ms, kind, "b") for ms, kind in events), further=1)
    for event in of.core["0"]["events"]:
        event |= {"peer": "p", "cause": "flapping" if event["kind"] == "path_held" else ""}
    (second,) = of.further_faults
    later = {"t_before_ns": 80 * MS, "t_after_ns": 80 * MS, "heal_ns": 100 * MS}
    last = [
        of.iterations[-1].model_copy(update={"phase": "repaired", "t_ns": ms * MS, "duration_ns": 10 * MS})
        for ms in (105, 120, 130)
    ]
    again = healed(of, 70).model_copy(
        update={
            "further_faults": (second.model_copy(update=later),),
            "iterations": (*of.iterations[:-1], *last),
            "evidence": Evidence(strikes=({"heal_from_ns": 69 * MS}, {"heal_from_ns": 99 * MS})),
        }
    )
    assert (value("return_ms", again), METRICS["return_ms"].exceeds(View(again))) == (returned, exceeds)
    begun = [i.t_ns // MS for i in View(again).in_phase("repaired")]
    assert begun == [ms for ms in (105, 120, 130) if ms >= 100 + (returned or 0)]
    assert not_back_within(again) == ("" if exceeds is None else "b not back within 40 ms")
    held = {None: "to its end, 40 ms or more", 30: "for 30 ms"}.get(returned, "") if (72, "path_held") in events else ""
    assert held in held_back([again]) and bool(held) == bool(held_back([again]))
    never = again.model_copy(update={"further_faults": (second.model_copy(update=later | {"heal_ns": None}),)})
    assert (value("return_ms", never), METRICS["return_ms"].exceeds(View(never))) == (None, None)


@pytest.mark.parametrize(
    ("events", "returned"),
    [
        ([(42, "path_down", "p"), (43, "path_down", "q"), (62, "path_returned", "p"), (63, "path_returned", "q")], 0),
        ([(42, "path_down", "p"), (43, "path_down", "q"), (62, "path_returned", "p")], None),
        ([(42, "path_down", "p"), (50, "path_returned", "p")], None),  # in the hole
        ([(42, "path_down", "p"), (62, "path_returned", "p"), (70, "path_held", "p")], None),
        ([(42, "path_down", "p"), (62, "path_returned", "p"), (70, "path_held", "p"), (103, "path_returned", "p")], 13),
    ],
)  # fmt: skip
def test_a_nic_whose_paths_return_from_a_black_hole_while_it_is_slow_carries_at_the_last_heal(
    events: list[tuple[int, str, str]], returned: float | None
) -> None:
    """It carried at full speed from the heal of the slowness on, and was told as not back to the end of the trial."""
    of = logged(*((ms - 30, kind, path) for ms, kind, path in events), further=1)
    for event in of.core["0"]["events"]:
        event |= {"peer": event["nic"], "nic": "b", "cause": "probation"}
    (second,) = of.further_faults
    hole = {"kind": "blackhole", "nic": "b", "t_before_ns": 40 * MS, "t_after_ns": 40 * MS, "heal_ns": 61 * MS}
    slow = healed(of, 90)
    assert slow.fault is not None
    last = of.iterations[-1].model_copy(update={"phase": "repaired", "t_ns": 110 * MS, "duration_ns": 10 * MS})
    both = slow.model_copy(
        update={
            "fault": slow.fault.model_copy(update={"kind": "rate_limit"}),
            "further_faults": (second.model_copy(update=hole),),
            "iterations": (*of.iterations[:-1], last),
            "evidence": Evidence(strikes=({"heal_from_ns": 85 * MS}, {"heal_from_ns": 60 * MS}), lasts_s=0.06),
        }
    )
    assert (value("return_ms", both), not_back_within(both)) == (
        returned, "" if returned is not None else "b not back within 30 ms",
    )  # fmt: skip
    assert View(both).cost_goes_on is (returned is None)


@pytest.mark.parametrize(
    ("events", "heals_ms", "returned", "exceeds", "told"),
    [
        # Each return is from the NIC's own heal, and the trial ends at 150 ms.
        ([(2, "path_down", "b"), (4, "path_down", "c"), (61, "path_returned", "b"), (95, "path_returned", "c")],
         (90, 100), 25, None, ""),
        ([(2, "path_down", "b"), (4, "path_down", "c"), (72, "path_returned", "c"), (95, "path_returned", "b")],
         (90, 100), 35, None, ""),
        ([(2, "path_down", "b"), (4, "path_down", "c"), (61, "path_returned", "b")],
         (90, 100), None, 50, "c not back within 50 ms"),
        ([(2, "path_down", "b"), (4, "path_down", "c"), (72, "path_returned", "c")],
         (90, 100), None, 60, "b not back within 60 ms"),
        ([(2, "path_down", "b"), (4, "path_down", "c")],
         (90, 100), None, 60, "b not back within 60 ms, c not back within 50 ms"),
        # It took longer than the other one was watched for.
        ([(2, "path_down", "b"), (4, "path_down", "c"), (105, "path_returned", "b")],
         (90, 130), None, 45, "c not back within 20 ms"),
        # Nobody used the second one.
        ([(2, "path_down", "b"), (61, "path_returned", "b")], (90, 100), 1, None, ""),
        # The second one was healed by the end of the trial only.
        ([(2, "path_down", "b"), (4, "path_down", "c"), (61, "path_returned", "b")], (90, 160), 1, None, ""),
        ([(2, "path_down", "b"), (4, "path_down", "c"), (72, "path_returned", "c")], (160, 100), 2, None, ""),
    ],
)  # fmt: skip
def test_every_nic_that_a_scenario_breaks_is_followed(
    events: list[tuple[int, str, str]],
    heals_ms: tuple[int, int],
    returned: float | None,
    exceeds: float | None,
    told: str,
) -> None:
    """Only the NIC of the first fault was: that of its `also` was told as back while it carried nothing."""
    of = logged(*events, further=1)
    (second,) = of.further_faults
    also = {"nic": "c", "t_before_ns": 33 * MS, "t_after_ns": 33 * MS, "heal_ns": heals_ms[1] * MS}
    last = [
        of.iterations[-1].model_copy(update={"phase": "repaired", "t_ns": ms * MS, "duration_ns": 10 * MS})
        for ms in (101, 120, 127, 140)
    ]
    both = healed(of, heals_ms[0]).model_copy(
        update={
            "further_faults": (second.model_copy(update=also),),
            "iterations": (*of.iterations[:-1], *last),
            "evidence": Evidence(strikes=({"heal_from_ns": 89 * MS}, {"heal_from_ns": 99 * MS})),
        }
    )
    assert (value("return_ms", both), METRICS["return_ms"].exceeds(View(both))) == (returned, exceeds)
    assert not_back_within(both) == told
    for nic in ("b", "c"):
        assert (f"a {nic} by s in 1 trial" in not_back([both])) == (f"{nic} not back" in told)
    if max(heals_ms) < 130 and exceeds is None:
        came_ms = max(30 + ms for ms, kind, _ in events if kind == "path_returned")
        begun = [i.t_ns // MS for i in View(both).in_phase("repaired")]
        assert begun == [ms for ms in (101, 120, 127, 140) if ms >= max(came_ms, max(heals_ms))]


def test_a_trial_that_was_over_before_the_heal_tells_no_return() -> None:
    of = logged(*LOST, (56, "link_up", "b"), (58, "path_returned", "b"))
    assert of.fault is not None
    assert (
        value("return_ms", of.model_copy(update={"fault": of.fault.model_copy(update={"heal_ns": 170 * MS})})) is None
    )


@pytest.mark.parametrize(
    ("cause", "peer", "expected"),
    [
        ("probation", "p", 1),  # it carried for 19 ms
        ("probation", "q", 60),  # of another pair, which has not carried yet
        ("flapping", "p", 60),  # the sender's hold of a path whose receiver told the return
    ],
)
def test_a_probation_that_begins_once_the_nic_carries_again_is_no_part_of_its_return(
    cause: str, peer: str, expected: float
) -> None:
    of = logged(*LOST, (61, "path_returned", "b"), (80, "path_held", "b"), (120, "path_returned", "b"))
    assert of.fault is not None
    for event in of.core["0"]["events"]:
        event |= {"peer": "p"}
        if event["kind"] == "path_held":
            event |= {"peer": peer, "cause": cause}
    healed = of.model_copy(update={"fault": of.fault.model_copy(update={"heal_ns": 90 * MS})})
    assert value("return_ms", healed) == expected


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([*LOST, (61, "path_returned", "b"), (62, "path_held", "b")], 60),  # it is held back to the end of the trial
        ([*LOST, (50, "link_up", "b")], 60),
        ([*LOST, (61, "path_returned", "b")], None),  # its return is known
        ([(1, "link_down", "b")], None),  # no path used it
        ([(1, "path_down", "c")], None),
    ],
)
def test_a_nic_that_did_not_carry_again_before_the_trial_ended_was_out_at_least_so_long(
    events: list[tuple[int, str, str]], expected: float | None
) -> None:
    of = logged(*events)
    assert of.fault is not None
    healed = of.model_copy(update={"fault": of.fault.model_copy(update={"heal_ns": 90 * MS})})
    assert METRICS["return_ms"].exceeds(View(healed)) == expected
    assert METRICS["return_ms"].exceeds(View(healed.model_copy(update={"status": "failed"}))) is None, "it ended itself"
    assert METRICS["return_ms"].exceeds(View(of)) is None, "it was not healed"
    assert METRICS["before_ms"].exceeds(View(healed)) is None


def test_a_speed_after_the_repair_is_told_to_be_without_a_nic_that_was_not_back() -> None:
    def ended(*events: tuple[int, str, str]) -> Trial:
        of = logged(*LOST, *events)
        assert of.fault is not None
        last = of.iterations[-1].model_copy(update={"phase": "repaired", "t_ns": 95 * MS, "duration_ns": 55 * MS})
        healed = of.fault.model_copy(update={"heal_ns": 90 * MS})
        return of.model_copy(update={"fault": healed, "iterations": (*of.iterations[:-1], last)})

    out, back = ended((50, "link_up", "b")), ended((50, "link_up", "b"), (62, "path_returned", "b"))
    assert not_back_within(out) == "b not back within 60 ms" and "b not back within 60 ms" in trial_line(out, 1.0)
    assert "a b by s in 2 trials, 60 ms after the heal. Speeds once everything is healed are without it" in not_back(
        [out, out, back]
    )
    assert not_back_within(back) == not_back([back]) == ""
    assert not_back([logged(*LOST)]) == "", "nothing is told of the time after the repair"
    made = tuple(each.model_copy(update={"trial_id": f"t-r{r}", "repeat": r}) for r, each in enumerate((out, back)))
    run = LoadedRun(Path("nowhere"), Run(experiment={"name": "x"}, started="now", finished="later"), made)
    line = headline(trial_frame([run]))[0]
    assert line.without_nic(METRICS["repaired_gbs"]) == "NIC not back in 1 of 2"
    assert "NIC not back in 1 of 2" in tables.cell_of(line, METRICS["repaired_gbs"])
    assert "NIC not back in 1 of 2" in page.told(line, METRICS["repaired_gbs"])
    assert line.without_nic(METRICS["after_gbs"]) == ""
    assert "checked,not_back,back_in_part" in tables.comma_separated([line])
    assert re.search(r"^r2ccl_not_back_trials{.*} 1$", machine.prometheus([run], [line]), re.M)
    unhealed = replace(line, values=dict(line.values) | {"repaired_ms": 0})
    assert "not_back" not in machine.prometheus([run], [unhealed]), "nothing ran after the repair"


def test_a_speed_after_the_repair_begins_when_the_nic_carries_again() -> None:
    """Else it is that of the NICs that are left, for which nothing gives a reason where the NIC returns late."""
    of = logged(*LOST, (100, "path_returned", "b"))
    assert of.fault is not None
    many = trial(*[("before", 10)] * 3, ("hit", 40), ("after", 20), *[("repaired", 20)] * 3, ("repaired", 10))
    healed = {"fault": of.fault.model_copy(update={"heal_ns": 90 * MS})}
    late = many.model_copy(update=healed | {"core": of.core})
    assert (value("return_ms", late), value("repaired_ms", late), value("repaired_gbs", late)) == (40, 10, 1.0)
    out = many.model_copy(update=healed | {"core": logged(*LOST).core})
    assert value("repaired_ms", out) == 20
    assert "repaired of 2 iterations" in trial_line(late, 1.0), "it may be a slow one: half the speed stood there"
    assert "repaired of" not in trial_line(out, 1.0)
    steps = trial_line(late.model_copy(update={"counts": "steps"}), 1.0)
    assert "repaired of 2 steps" in steps, "what the workload calls them"
    served = trial_line(late.model_copy(update={"workload": "serving", "counts": "requests"}), 1.0)
    assert "repaired" not in served, "no number that it would be of"
    short = late.model_copy(update={"iterations": late.iterations[:-2]})
    assert value("repaired_ms", short) is None, "none began once it carried"
    assert not_back([late, short]) == ""


@pytest.mark.parametrize(
    ("before", "hit", "after", "repaired", "lost", "slowdown", "by_medians"),
    [
        (20, 200, 40, 15, None, None, None),  # 200 ms until the repair, and -50 after it
        (20, 60, 20, 15, None, None, None),  # 40 and -50: less than nothing, by less than 5 % of all
        (20, 2000, 40, 15, 1950, 51.0, None),  # so much more that it says enough, but for a median
        (20, 2000, 90, 15, 2000, 52.25, 4.5),
        (100, 120, 100, 98, None, 1.1, 1.0),  # a little in each of them
        (20, 200, 40, 20, 200, 6.0, 2.0),
        (20, 200, 40, 25, 250, 6.0, 2.0),
    ],
)
def test_healthy_iterations_before_the_fault_and_after_its_repair_have_to_agree(
    before: int, hit: int, after: int, repaired: int, lost: float | None, slowdown: float | None, by_medians: float
) -> None:
    """155 ms were told of gloo: 1303 until the repair, and -1148 after it."""
    told = (*[("before", before)] * 4, ("hit", hit), ("after", after), *[("repaired", repaired)] * 10)
    of = healed(trial(*told, kind="flap"), 4 * before + hit + after)
    assert (value("lost_ms", of), value("slowdown", of)) == (lost, slowdown)
    assert cost.reads_low(View(of)) == (lost is None)
    why = "not known: the iterations before the fault were slower than those after its repair"
    assert cost.not_known(View(of)).endswith(why) == (lost is None)
    once = healed(trial(*told), 4 * before + hit + after)
    assert (value("lost_ms", once), value("slowdown", once)) == (lost, by_medians)
    assert cost.reads_low(View(once), by_medians=True) == (by_medians is None)
    assert cost.not_known(View(once)).endswith(why) == (None in (lost, by_medians))
    few = once.model_copy(update={"iterations": once.iterations[:8]})
    assert value("slowdown", few) == after / before, "two are no median"
    assert value("lost_ms", of.model_copy(update={"workload": "training"})) is not None, "its steps may differ"


@pytest.mark.parametrize(
    ("switches_ms", "known"),
    [
        ([], False),
        ([150], True),  # what follows the repair is by the schedule of the loss
        ([150, 330], False),  # 8 of the 10 gain 40 ms
        ([150, 430], True),  # 2 gain 10 ms
        ([330], False),  # switched back from a switch that a rank lost with its log
    ],
)
def test_ranks_that_switched_are_healthy_again_once_they_have_switched_back(
    switches_ms: list[int], known: bool
) -> None:
    of = healed(trial(*[("before", 20)] * 4, ("hit", 80), ("after", 40), ("after", 40), *[("repaired", 15)] * 10), 240)
    events = [{"t_ns": at * MS, "kind": "switched", "nic": ""} for at in switches_ms]
    switched = of.model_copy(update={"core": {"0": {"events": events}}})
    assert (value("lost_ms", switched) is not None) == known
    if len(switches_ms) != 1:
        assert (value("slowdown", switched) is not None) == known


def test_iterations_without_the_nic_that_is_not_back_do_not_say_what_healthy_is() -> None:
    of = trial(*[("before", 20)] * 4, ("hit", 200), ("after", 40), *[("repaired", 15)] * 10)
    events = [{"t_ns": 81 * MS, "kind": "path_down", "nic": "b"}]
    out = healed(of, 320).model_copy(update={"core": {"0": {"events": events}}})
    assert METRICS["return_ms"].exceeds(View(out)) == 150
    assert value("lost_ms", out) == 150
    late = {"t_ns": 400 * MS, "kind": "path_returned", "nic": "b"}  # with it, 4 of the 10 gain 20 ms
    assert value("lost_ms", out.model_copy(update={"core": {"0": {"events": [*events, late]}}})) is None
    late["t_ns"] = 440 * MS  # 2 gain 10 ms
    assert value("lost_ms", out.model_copy(update={"core": {"0": {"events": [*events, late]}}})) == 150


@pytest.mark.parametrize(
    ("pause", "of_hang", "lost"),
    [
        (2, 1800, 5 + 1798),
        (2, 15, 5 + 13),
        (2, 14, 5),  # a healthy machine may pause as long: an iteration and a pause together
    ],
)
def test_a_hang_between_two_iterations_is_time_lost(pause: int, of_hang: int, lost: float) -> None:
    """gloo ended the iteration that was hit and hung in the barrier before the next: 49 ms of 1800 were told."""
    of = trial(*[("before", 10), ("before", 12), ("before", 11)], ("hit", 16), *[("after", 11)] * 3)
    gaps = [0, *[pause] * 3, of_hang, pause, pause]
    shifts = [sum(gaps[: at + 1]) * MS for at in range(len(gaps))]
    rows = [i.model_copy(update={"t_ns": i.t_ns + by}) for i, by in zip(of.iterations, shifts, strict=True)]
    assert of.fault is not None
    fault = of.fault.model_copy(update={"t_before_ns": rows[3].t_ns, "t_after_ns": rows[3].t_ns})
    hung = of.model_copy(update={"iterations": tuple(rows), "fault": fault, "evidence": Evidence(timed_whole=True)})
    assert value("lost_ms", hung) == pytest.approx(lost)
    for parts in (Evidence(), Evidence(timed_whole=False)):
        assert value("lost_ms", hung.model_copy(update={"evidence": parts})) == 5, "the rest of it may be no pause"


@pytest.mark.parametrize(
    ("heal_ms", "heal_from_ms", "lost"),
    [
        (700, None, 6 + 698),  # it lasts until the repair
        (700, 690, 6 + 698),
        (900, 699, 6 + 698),  # the NIC carries before the last command of the heal is over
        (900, None, 6),
        (90, 60, 6),
        (130, 60, 6),  # the fault was gone when it began
    ],
)
def test_a_hang_that_lasts_until_the_repair_is_time_lost(heal_ms: int, heal_from_ms: int | None, lost: float) -> None:
    """gloo takes its NICs in turn: with 5 of them it hung after the iteration that followed the hit one, until the NIC
    was back, and 5 ms were told of 681."""
    of = trial(*[("before", 10)] * 3, ("hit", 16), ("after", 10), *[("repaired", 10)] * 3)
    gaps = [0, *[2] * 4, 700, 2, 2]
    shifts = [sum(gaps[: at + 1]) * MS for at in range(len(gaps))]
    rows = [i.model_copy(update={"t_ns": i.t_ns + by}) for i, by in zip(of.iterations, shifts, strict=True)]
    assert of.fault is not None
    end_ns, heal_ns = rows[4].t_ns + rows[4].duration_ns, heal_ms * MS
    assert (end_ns, rows[5].t_ns) == (64 * MS, 764 * MS)
    strike = {} if heal_from_ms is None else {"heal_from_ns": heal_from_ms * MS}
    fault = of.fault.model_copy(update={"t_before_ns": rows[3].t_ns, "t_after_ns": rows[3].t_ns, "heal_ns": heal_ns})
    evidence = Evidence(timed_whole=True, strikes=(strike,))
    hung = of.model_copy(update={"iterations": tuple(rows), "fault": fault, "evidence": evidence})
    assert value("lost_ms", hung) == pytest.approx(lost)


@pytest.mark.parametrize(("kind", "counts"), [("nic_down", 0), ("blackhole", 0), ("loss", 1), ("flap", 1)])
def test_a_long_pause_later_counts_only_while_a_fault_goes_on_that_is_not_the_loss_of_a_nic(
    kind: str, counts: int
) -> None:
    """On a busy machine, pauses 0.3 to 2.3 s after the loss of a NIC were told as its cost: 211 of 654 ms."""
    of = trial(*[("before", 10)] * 3, ("hit", 16), ("after", 10), ("after", 10), *[("repaired", 10)] * 2, kind=kind)
    gaps = [0, *[2] * 4, 100, 2, 100]
    shifts = [sum(gaps[: at + 1]) * MS for at in range(len(gaps))]
    rows = [i.model_copy(update={"t_ns": i.t_ns + by}) for i, by in zip(of.iterations, shifts, strict=True)]
    assert of.fault is not None
    times = {"t_before_ns": rows[3].t_ns, "t_after_ns": rows[3].t_ns, "heal_ns": rows[6].t_ns - MS}
    paused = of.model_copy(
        update={
            "iterations": tuple(rows),
            "fault": of.fault.model_copy(update=times),
            "evidence": Evidence(timed_whole=True),
        }
    )
    assert value("lost_ms", paused) == pytest.approx(6 + counts * 98)


@pytest.mark.parametrize(
    ("hit", "error_ms", "known"),
    [
        ([10] * 8 + [20], 40, False),  # eight of the nine may be healthy
        ([10] * 8 + [200], 40, True),
        ([10] * 8 + [20], 4, True),
        ([60], 40, True),  # no other one can be meant
    ],
)
def test_the_speed_of_the_iterations_that_are_hit_is_not_known_where_healthy_ones_may_be_among_them(
    hit: list[int], error_ms: int, known: bool
) -> None:
    """An injection took 85 ms, in which 105 iterations ran: the speed with the fault was above the healthy one."""
    of = trial(*[("before", 10)] * 3, *[("hit", ms) for ms in hit], *[("after", 15)] * 3)
    effect = {"t_ns": (30 + error_ms) * MS, "error_ns": error_ms * MS}
    of = of.model_copy(update={"evidence": Evidence.model_validate({"effects": [effect]})})
    for name in ("hit_gbs", "hit_ms", "hit_cost_ms"):
        assert (value(name, of) is not None) == known, name
    assert value("after_gbs", of) == 10 / 15
    assert value("lost_ms", of) == sum(hit) + 45 - 10 * (len(hit) + 3), "which of them are hit makes no difference"


def test_a_healed_nic_that_is_held_back_is_told_with_its_reason() -> None:
    def told(*events: tuple[int, str, str], cause: str = "flapping") -> str:
        of = logged(*LOST, *events)
        assert of.fault is not None
        for event in of.core["0"]["events"]:
            event |= {"cause": cause, "detail": "words that may change"}
        return held_back([of.model_copy(update={"fault": of.fault.model_copy(update={"heal_ns": 90 * MS})})] * 2)

    to_the_end = told((61, "path_returned", "b"), (62, "path_held", "b"))
    assert "a b by s in 2 trials to their end, 60 ms or more. It carried nothing" in to_the_end
    assert "R2CC_FLAP_*" in to_the_end
    assert "to their end" in told((50, "path_held", "b")), "the hold began while the NIC was still coming and going"
    assert "a b by s in 2 trials for 30 ms." in told((62, "path_held", "b"), (90, "path_returned", "b"))
    before = (50, "path_held", "b")
    assert "a b by s in 2 trials for 30 ms." in told(before, (90, "path_returned", "b")), "the link was up at the heal"
    assert told(before, (52, "path_returned", "b"), (55, "path_down", "b"), (90, "path_returned", "b")) == ""
    assert told(before, (55, "link_down", "b"), (56, "path_down", "b")) == "", "lost, and held no more"
    assert told((61, "path_returned", "b")) == "", "nothing held it back"
    assert told((62, "path_held", "c")) == "", "another NIC"
    assert told((62, "path_held", "b"), cause="probation") == "", "no damping"


@pytest.mark.parametrize(
    ("after", "cost", "stall"),
    [
        ([100], None, None),  # nothing says what it would have taken
        ([100, 20, 20], 80 - 5, 80),
        ([20, 20, 20], -5, None),  # slow, not stopped
        ([20, 100, 20], -5, None),  # a later one, for another reason
    ],
)
def test_the_cost_is_of_the_iteration_that_the_fault_stopped(
    after: list[int], cost: float | None, stall: float | None
) -> None:
    """gloo ended the step that was hit and hung in the next: the cost was -1585 ms."""
    stops = trial(("before", 10), ("before", 16), ("hit", 15), *[("after", ms) for ms in after])
    assert value("hit_cost_ms", stops) == cost
    if stall is not None or cost is None:
        assert value("stall_ms", stops) == stall


@pytest.mark.parametrize(
    ("returned", "in_part"),
    [
        ([("2", "ip-b")], True),
        ([("1", "ip-a")], False),  # the other end of the path that is held
        ([("1", "ip-a"), ("2", "ip-b")], True),
        ([("2", "elsewhere")], False),
        ([], False),
    ],
)
def test_a_nic_of_which_one_path_is_held_and_another_carries_is_back_in_part(
    returned: list[tuple[str, str]], in_part: bool
) -> None:
    """It was told as not back, and that it carried nothing."""
    of = logged(*LOST)
    assert of.fault is not None
    events = [(55, "path_held", "0", "ip-b"), *((70, "path_returned", rank, peer) for rank, peer in returned)]
    core: dict[str, Any] = {
        rank: {"nics": [{"name": "b", "address": address}], "events": []}
        for rank, address in (("0", "ip-a"), ("1", "ip-b"), ("2", "ip-c"))
    }
    core["0"]["events"] = list(of.core["0"]["events"])
    for ms, kind, rank, peer in events:
        core[rank]["events"].append(
            {"t_ns": (30 + ms) * MS, "kind": kind, "nic": "b", "peer": peer, "cause": "flapping"}
        )
    last = of.iterations[-1].model_copy(update={"phase": "repaired", "t_ns": 95 * MS, "duration_ns": 55 * MS})
    healed = of.fault.model_copy(update={"heal_ns": 90 * MS})
    one = of.model_copy(update={"fault": healed, "core": core, "iterations": (*of.iterations[:-1], last)})
    assert METRICS["return_ms"].exceeds(View(one)) == 60, "not whole before the end"
    how = "back in part only" if in_part else "not back"
    assert not_back_within(one) == f"b {how} within 60 ms"
    told = held_back([one])
    assert ("some paths of a b, while others carried, by s" in told) == in_part
    assert ("What was held carried nothing" if in_part else ". It carried nothing") in told
    run = LoadedRun(Path("nowhere"), Run(experiment={"name": "x"}, started="now", finished="later"), (one,))
    line = headline(trial_frame([run]))[0]
    assert (line.not_back, line.back_in_part) == (int(not in_part), int(in_part))
    assert line.without_nic(METRICS["repaired_gbs"]) == f"NIC {how.removesuffix(' only')} in 1 of 1"
    samples = [text for text in machine.prometheus([run], [line]).splitlines() if text.startswith("r2ccl_")]
    found = {text.partition("{")[0]: text.rpartition(" ")[2] for text in samples}
    assert found["r2ccl_not_back_trials"] == str(int(not in_part))
    assert found["r2ccl_back_in_part_trials"] == str(int(in_part))


SAME_RAIL = {
    "clock_offsets_ns": {"a": 0, "c": 0, "d": 0},
    "strikes": ({"heal_from_ns": 60 * MS}, {"heal_from_ns": 90 * MS}),
}


def same_rail(*events: tuple[int, str, str, str], hosts: str = "acd") -> Trial:
    """NIC `b` of host a is lost from 30 to 60 ms and that of host c from 40 to 90, in the hit iteration, and the trial
    ends at 150. Of each event: when, its kind, and the hosts at both ends of the path, first that of the core."""
    of = logged(further=1)
    core: dict[str, Any] = {
        str(rank): {
            "nics": [{"name": "b", "address": f"ip-{host}"}],
            "events": [
                {"t_ns": 0, "kind": "path_up", "nic": "b", "peer": f"ip-{peer}"} for peer in hosts if peer != host
            ],
        }
        for rank, host in enumerate(hosts)
    }
    for ms, kind, own, peer in events:
        told = {"t_ns": ms * MS, "kind": kind, "nic": "b", "peer": f"ip-{peer}" if peer else "", "cause": ""}
        core[str(hosts.index(own))]["events"].append(told)
    (second,) = of.further_faults
    at = {"host": "c", "t_before_ns": 40 * MS, "t_after_ns": 40 * MS, "heal_ns": 90 * MS}
    last = of.iterations[-1].model_copy(update={"phase": "repaired", "t_ns": 95 * MS, "duration_ns": 55 * MS})
    return healed(of, 60).model_copy(
        update={
            "core": core,
            "further_faults": (second.model_copy(update=at),),
            "iterations": (*of.iterations[:-1], last),
            "evidence": Evidence.model_validate(SAME_RAIL),
        }
    )


BOTH_LOST = (
    (32, "path_down", "a", "c"),
    (33, "path_down", "d", "a"),
    (42, "path_down", "c", "d"),
)


@pytest.mark.parametrize(
    ("events", "returned", "exceeds", "told"),
    [
        # Only the path to d is a's alone; the one between both cannot return before c is healed.
        ([(85, "path_returned", "d", "a"), (92, "path_returned", "c", "d"), (95, "path_returned", "a", "c")],
         25, None, ""),
        ([(61, "path_returned", "d", "a"), (92, "path_returned", "c", "d"), (95, "path_returned", "a", "c")],
         5, None, ""),
        ([(91, "link_up", "c", ""), (92, "path_returned", "c", "d"), (95, "path_returned", "a", "c")],
         None, 90, "a b not back within 90 ms"),
        ([(61, "path_returned", "d", "a"), (95, "path_returned", "a", "c")], None, 60,
         "c b back in part only within 60 ms"),
        ([(61, "path_returned", "d", "a"), (92, "path_returned", "c", "d")], None, 60,
         "c b back in part only within 60 ms"),
    ],
)  # fmt: skip
def test_a_nic_returns_by_its_own_heal_where_another_host_loses_one_of_that_name(
    events: list[tuple[int, str, str, str]], returned: float | None, exceeds: float | None, told: str
) -> None:
    """Its return was told from the later heal: 18 ms of 321."""
    both = same_rail(*BOTH_LOST, *events)
    assert (value("return_ms", both), METRICS["return_ms"].exceeds(View(both))) == (returned, exceeds)
    assert not_back_within(both) == told
    sentence = not_back([both])
    assert bool(sentence) == bool(told) and (told[:3] in sentence) and ("a and c" not in sentence)
    unknown = both.model_copy(update={"evidence": Evidence(strikes=SAME_RAIL["strikes"])})
    assert [nic.told for nic in View(unknown).healed_nics] == ["a and c b"], "nothing says which rank is on which host"


@pytest.mark.parametrize(
    ("event", "detect"),
    [
        ((35, "path_down", "a", "c"), 5),
        ((45, "path_down", "d", "a"), 15),
        ((45, "path_down", "a", "c"), None),  # it may be a sign of either
        ((35, "path_down", "d", "c"), None),
        ((45, "link_down", "c", ""), None),
        ((65, "path_down", "d", "a"), None),  # its NIC is healed
    ],
)
def test_signs_of_another_host_s_nic_of_the_same_name_are_none(
    event: tuple[int, str, str, str], detect: float | None
) -> None:
    """The loss of another host's NIC was told as noticed 701 ms after a rate limit that was over by then."""
    assert value("detect_ms", same_rail(event)) == detect


def test_two_struck_nics_with_no_path_but_that_between_them_are_one() -> None:
    lost = (32, "path_down", "a", "c")
    between = same_rail(lost, (95, "path_returned", "a", "c"), hosts="ac")
    assert [nic.told for nic in View(between).healed_nics] == ["a and c b"]
    assert value("return_ms", between) == 5
    assert not_back_within(same_rail(lost, hosts="ac")) == "b not back within 60 ms"


def test_the_same_fault_again_ends_the_first_loss() -> None:
    again = logged(*LOST, (50, "migrated", "b"), further=1)
    (second,) = again.further_faults
    assert value("migrate_ms", again.model_copy(update={"further_faults": ()})) == 50
    later = second.model_copy(update={"t_before_ns": 70 * MS})
    assert value("migrate_ms", again.model_copy(update={"further_faults": (later,)})) is None
    other = later.model_copy(update={"nic": "c"})
    assert value("migrate_ms", again.model_copy(update={"further_faults": (other,)})) == 50


def test_several_failures_come_and_go_if_one_is_healed_and_a_repair_ends_the_loss() -> None:
    parted = trial(("before", 10), ("hit", 40), ("after", 20), ("after", 30), further=1)
    (first,) = parted.further_faults
    healed = first.model_copy(update={"heal_ns": 60 * MS})
    assert value("slowdown", parted.model_copy(update={"further_faults": (healed,)})) == pytest.approx(90 / 3 / 10)
    once = trial(("before", 10), ("hit", 40), ("after", 20), ("repaired", 10))
    assert (value("slowdown", once), value("lost_ms", once)) == (2.0, 40)


def test_failures_that_stay_are_judged_by_what_follows_all_of_them() -> None:
    both = trial(("before", 10), ("hit", 40), ("after", 15), ("after", 15), further=1)
    assert value("slowdown", both) == 1.5
    assert value("hit_cost_ms", both) == 25
    assert value("stall_ms", both) is None
    later = trial(("before", 10), ("hit", 40), ("after", 15), ("after", 15), ("hit", 60), ("after", 30), further=1)
    (first,) = later.further_faults
    late = later.model_copy(update={"further_faults": (first.model_copy(update={"t_after_ns": 100 * MS}),)})
    assert (value("slowdown", late), value("after_ms", late), value("lost_ms", late)) == (3.0, 30, 110)


def test_a_trial_that_ended_before_its_repair_is_told_from_one_that_saw_it() -> None:
    """It ends at 85 ms."""
    assert View(healed(CUT, 85)).cost_goes_on and not View(healed(CUT, 84)).cost_goes_on
    assert "lost 35 ms  ended before the cost was over" in trial_line(healed(CUT, 100), 1.0)
    (again,) = healed(CUT, 85).faults
    twice = healed(CUT, 40).model_copy(update={"further_faults": (again,)})
    assert View(twice).cost_goes_on, "of the last time that it came"
    elsewhere = again.model_copy(update={"nic": "c"})
    assert not View(twice.model_copy(update={"further_faults": (elsewhere,)})).cost_goes_on, "it may stay"
    assert View(healed(CUT, 84)).to_be_repaired and not View(LOSS).to_be_repaired
    for other in (LOSS, healed(LOSS, 500), trial(("before", 10), status="failed")):
        assert not View(other).cost_goes_on, "nothing was to be repaired before the end"


@pytest.mark.parametrize(
    ("events", "lasts_s", "goes_on"),
    [
        ((), 0.06, False),  # nobody used the NIC
        (LOST, 0.06, True),
        ((*LOST, (60, "path_returned", "b")), 0.06, False),
        ((*LOST, (60, "path_returned", "b"), (61, "path_held", "b")), 0.06, True),
        ((*LOST, (60, "path_returned", "b"), (61, "path_held", "b"), (100, "path_returned", "b")), 0.06, False),
        (LOST, None, False),  # failures by chance: every trial sees another part of them
    ],
)
def test_a_cost_goes_on_until_a_nic_that_was_used_carries_again(
    events: tuple[tuple[int, str, str], ...], lasts_s: float | None, goes_on: bool
) -> None:
    """Trials with a flapping NIC that was held back lost 1664 ms, longer ones 5692, told as that of the whole trial."""
    of = healed(logged(*events), 90).model_copy(update={"evidence": Evidence(lasts_s=lasts_s)})
    assert View(of).cost_goes_on == goes_on
    assert ("ended before the cost was over" in trial_line(of, 1.0)) == goes_on
    served = of.model_copy(update={"workload": "serving"})
    assert "the cost" not in trial_line(served, 1.0), "no time lost is told of requests"


@pytest.mark.parametrize("comes_and_goes", [False, True])
def test_a_trial_that_stopped_after_the_first_of_several_failures_is_judged_as_the_others(comes_and_goes: bool) -> None:
    """Its own failures are fewer: what its scenario is decides, or *after* would be another number in its cell."""
    evidence = Evidence(several=True, comes_and_goes=comes_and_goes)
    before: list[tuple[Phase, int]] = [("before", 10), ("before", 10), ("before", 40)]
    went_on = trial(*before, ("hit", 40), ("after", 20), further=1).model_copy(update={"evidence": evidence})
    stopped = trial(*before, ("hit", 40), status="failed").model_copy(update={"evidence": evidence})
    assert value("before_ms", went_on) == value("before_ms", stopped) == 10
    assert value("before_gbs", went_on) == value("before_gbs", stopped)
    assert not View(stopped).loses_a_nic, "no model, and no limit, is of a scenario with several failures"
    assert value("stall_ms", stopped) is None
    assert value("hit_cost_ms", stopped) is None


def test_a_meaning_needs_no_other_metric_beside_it() -> None:
    assert [name for name, metric in METRICS.items() if "the same iterations" in metric.meaning] == []


@pytest.mark.parametrize("name", METRICS)
def test_an_inconclusive_trial_has_no_value_of_any_metric(name: str) -> None:
    assert value(name, LOSS.model_copy(update={"status": "inconclusive"})) is None


@pytest.mark.parametrize(
    ("name", "together"), [("slowdown", 2.0), ("wrong", 7.0), ("before_gbs", 2.0), ("over_schedule", 2.0)]
)
def test_repeats_come_to_the_metrics_aggregate(name: str, together: float) -> None:
    values = [1.0, None, 4.0, 2.0]
    assert METRICS[name].together(values) == together
    assert METRICS[name].together([1.0, 4.0, 2.0], "worst") == (1.0 if name == "before_gbs" else 4.0)


def test_a_new_metric_is_a_record_and_reaches_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line in the list, and tables, exports, bounds and rules know it."""
    own = Metric("fifth_ms", "ms", "lower", "a fifth of an iteration", lambda view: 2.0, heading="fifth", short="fifth")
    monkeypatch.setitem(METRICS, own.name, own)
    assert rows.metric_column("fifth_ms") in rows.arrow_schema().names
    bound: dict[str, Any] = {"metric": "fifth_ms", "max": 3}
    assert list(bound_mistakes([BoundModel.model_validate(bound)], [], [], [], {}, "collective")) == []
    (rule,) = Rules.model_validate({"rule": [{"metric": "fifth_ms", "tolerance": "3 ms"}]}).rules
    assert rule.better == "lower"
    assert (machine.gauge(own), columns.heading(own)) == ("r2ccl_fifth_milliseconds", "fifth (ms)")


def test_names_and_gauges_are_each_used_once() -> None:
    assert [metric.name for metric in METRICS.values()] == list(METRICS)
    assert len({machine.gauge(metric) for metric in METRICS.values()}) == len(METRICS)
    assert all(metric.meaning and not metric.meaning.endswith(".") for metric in METRICS.values())


@pytest.mark.parametrize("name", METRICS)
def test_a_gauge_has_a_name_that_prometheus_reads(name: str) -> None:
    assert re.fullmatch("[a-zA-Z_:][a-zA-Z0-9_:]*", machine.gauge(METRICS[name]))


def test_a_metric_without_a_better_side_needs_a_direction() -> None:
    assert METRICS["over_schedule"].better is None
    with pytest.raises(ValueError, match="add direction"):
        Rules.model_validate({"rule": [{"metric": "over_schedule", "tolerance": "5 %"}]})


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (healed(trial(*STILL), 1020), True),
        (healed(trial(*STILL[:4]), 1020), True),  # the last one outlasts the repair
        (healed(trial(*STILL[:4]), 2000), False),
        (trial(*STILL[:4]), False),
        (healed(trial(*BACK), 90), False),
        (healed(trial(*STILL, status="failed"), 1020), False),
        (trial(("before", 10)), False),
    ],
)
def test_a_trial_whose_hit_iteration_lasts_until_the_repair_is_told_apart(of: Trial, expected: bool) -> None:
    assert View(of).until_repair is expected
