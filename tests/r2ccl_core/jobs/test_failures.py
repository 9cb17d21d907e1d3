"""Failures over time and what they take from a job: seeds, rates, closed forms, and controls that must differ."""

from dataclasses import replace
from datetime import date
from pathlib import Path
from statistics import fmean, pvariance

import pytest

from r2ccl_core.errors import UsageError
from r2ccl_core.jobs import failures, montecarlo
from r2ccl_core.jobs.failures import PRESETS, Event, Rates, concurrent, draw
from r2ccl_core.jobs.goodput import Job, lost_hours, slowdown
from r2ccl_core.jobs.layout import Layout
from r2ccl_core.jobs.model import MODELS
from r2ccl_core.jobs.systems import SYSTEMS, Restart, system_named

JOB = Job(MODELS["gpt3-6.7b"], Layout(data=64, micro_batch=2), hosts=8)


def by_name(lost: list[int]) -> dict[str, float]:
    return {system.name: slowdown(JOB, system, lost) for system in SYSTEMS}


def test_the_same_seed_is_the_same_history() -> None:
    for rates in (*PRESETS.values(), failures.flash_cuts()):
        first = draw(rates, 64, 8, 54, "a")
        assert first == draw(rates, 64, 8, 54, "a")
        assert all(0 <= event.at_h < 54 * 24 and event.lasts_h > 0 for event in first)
        assert [event.at_h for event in first] == sorted(event.at_h for event in first)
    assert draw(PRESETS["upper"], 64, 8, 54, "a") != draw(PRESETS["upper"], 64, 8, 54, "b")


@pytest.mark.parametrize("name", PRESETS)
def test_presets_fail_as_often_as_they_say(name: str) -> None:
    rates = PRESETS[name]
    drawn = [draw(rates, 256, 8, 200, str(seed)) for seed in range(20)]
    nic_days = 20 * 200 * 256 * 8
    own = sum(event.kind != "switch" for events in drawn for event in events)
    assert own / nic_days * 1000 == pytest.approx(rates.nic + rates.flap, rel=0.15)


def test_bursts_vary_more_than_chance() -> None:
    """Fire-Flyer's days: the variance of their counts is about 3.3 times the mean; without bursts it would be 1."""

    def over_mean(rates: Rates) -> float:
        events = draw(rates, 206, 8, 4000, "x")
        counts = [0] * 4000
        for event in events:
            counts[int(event.at_h // 24)] += 1
        return pvariance(counts) / fmean(counts)

    assert 2.5 < over_mean(PRESETS["fire-flyer"]) < 4.2
    assert over_mean(Rates("even", 0.0, 0.37, 0.0, "test")) == pytest.approx(1.0, abs=0.15)


def test_the_trace_is_the_published_one() -> None:
    trace = failures.flash_cuts()
    assert len(trace.counts) == 348 and sum(trace.counts) == 213 and sum(map(bool, trace.counts)) == 100
    assert pvariance(trace.counts) / fmean(trace.counts) == pytest.approx(3.3, abs=0.1)
    events = [event for seed in range(50) for event in draw(trace, 206, 8, 348, str(seed))]
    assert len(events) / 50 == pytest.approx(213 * 206 * 8 / 1650, rel=0.05)


def test_a_switch_takes_a_rail_of_its_hosts() -> None:
    events = draw(Rates("switches", 0.0, 0.0, 50.0, "test"), 40, 8, 100, "s")
    assert events
    for event in events:
        assert len({nic for _, nic in event.nics}) == 1
        assert len(event.nics) in (16, 8)  # of 40 hosts the last switch has 8


def test_concurrent_failures_leave_every_host_a_nic() -> None:
    for seed in range(50):
        lost = [len(own) for own in concurrent(3, 2, 3, str(seed))]
        assert sum(lost) == 3 and max(lost) < 2


def test_recursion_tells_hosts_apart_that_lost_more_or_less() -> None:
    """A host that lost one NIC is no worse off because another lost four; with equal losses there is one level only."""
    different, equal = by_name([4, *[1] * 3, *[0] * 4]), by_name([2, 2, *[0] * 6])
    assert different["recursive"] < different["r2cc"]
    assert equal["recursive"] == equal["r2cc"]


def test_re_ranking_puts_a_whole_host_between_those_that_lost_different_rails() -> None:
    rails = replace(JOB, isolated_rails=True)
    lost = ((0,), (1,), *[()] * 6)  # neighbours share six rails; either of them seven with a whole host
    plain, moved = (slowdown(rails, system_named(name), lost) - 1 for name in ("balance", "reranked"))
    assert plain / moved == pytest.approx((8 / 6 - 1) / (8 / 7 - 1), rel=0.01)
    same = ((0,), (0,), *[()] * 6)
    assert slowdown(rails, system_named("balance"), same) == slowdown(rails, system_named("reranked"), same)
    assert slowdown(JOB, system_named("balance"), lost) == slowdown(JOB, system_named("reranked"), lost)
    with pytest.raises(UsageError, match="not modelled on isolated rails"):
        slowdown(rails, system_named("forest"), lost)
    with pytest.raises(UsageError, match="no rail in common"):
        slowdown(rails, system_named("balance"), ((0, 1, 2, 3), (4, 5, 6, 7), *[()] * 6))


def test_systems_lose_what_they_should() -> None:
    one = by_name([1, *[0] * 7])
    assert one["fail-stop"] == 1.0  # it restarts instead
    assert one["adapcc"] == pytest.approx(64 / 63)
    assert one["hot_repair"] > one["balance"] >= one["r2cc"] >= 1.0
    assert one["auto"] <= one["balance"]
    ten = by_name([2, 2, 1, 1, 1, 1, 1, 1])
    assert ten["balance"] > one["balance"]
    assert by_name([0] * 8) == dict.fromkeys(one, 1.0)
    assert by_name([8, *[0] * 7])["auto"] == float("inf")


def test_dropping_gpus_drops_replicas() -> None:
    adapcc = system_named("adapcc")
    cut = Job(MODELS["gpt3-13b"], Layout(data=4, tensor=8, pipeline=2, micro_batches=4), hosts=8)
    assert slowdown(cut, adapcc, [1, *[0] * 7]) == pytest.approx(4 / 3)
    assert slowdown(cut, adapcc, [1, 0, 0, 0, 1, 0, 0, 0]) == pytest.approx(4 / 3)  # both stages of one replica
    assert slowdown(cut, adapcc, [1, 1, 0, 0, 0, 0, 0, 0]) == pytest.approx(2)
    alone = Job(MODELS["gpt3-13b"], Layout(data=1, tensor=8, pipeline=8, micro_batches=4), hosts=8)
    assert slowdown(alone, adapcc, [1, *[0] * 7]) == float("inf")


def test_hours_are_lost_by_the_clock() -> None:
    job = Job(JOB.model, JOB.layout, 8, restart=Restart(600, 1200, 2.0, 0.0))
    event = Event(10.0, 5.0, "nic", ((0, 0),))
    stopped = lost_hours(job, system_named("fail-stop"), [event], 1)
    assert sum(stopped.by_cause.values()) == pytest.approx(600 / 3600 + 1200 / 3600 + 1.0)
    assert stopped.goodput == pytest.approx(1 - 1.5 / 24)
    balanced = lost_hours(job, system_named("balance"), [event], 1)
    factor = slowdown(job, system_named("balance"), [1, *[0] * 7])
    assert balanced.by_cause["slowdown"] == pytest.approx(5 * (1 - 1 / factor))
    assert balanced.by_cause["pause"] == pytest.approx(1.2 / 3600)
    late = Event(23.0, 5.0, "nic", ((0, 0),))  # only what lies before the job's end counts
    assert lost_hours(job, system_named("balance"), [late], 1).by_cause["slowdown"] == pytest.approx(1 - 1 / factor)
    twice = [event, Event(12.0, 1.0, "nic", ((0, 0),))]  # the same NIC again is no second loss
    again = lost_hours(job, system_named("balance"), twice, 1).by_cause
    assert again["slowdown"] == pytest.approx(balanced.by_cause["slowdown"])


def test_a_flap_halts_and_does_not_restart() -> None:
    flap = Event(1.0, 5 / 3600, "flap", ((0, 0),))
    found = lost_hours(JOB, system_named("fail-stop"), [flap], 1).by_cause
    assert found["pause"] == pytest.approx(9 / 3600) and found["restart"] == 0.0


def test_more_failures_cost_more_goodput() -> None:
    job = Job(JOB.model, JOB.layout, 8, restart=Restart(checkpoint_s=0.0))
    rare, often = (montecarlo.goodputs(job, PRESETS[name], trials=10, days=30) for name in ("hpn", "upper"))
    for few, many in zip(rare, often, strict=True):
        assert few.goodput.mean >= many.goodput.mean, few.system
        assert many.goodput.low <= many.goodput.mean <= many.goodput.high
    by = {one.system: one.goodput.mean for one in often}
    assert by["auto"] > by["balance"] > by["hot_repair"] and by["balance"] > by["fail-stop"]


def test_bad_input_is_one_line(tmp_path: Path) -> None:
    def told(run: object, text: str) -> None:
        with pytest.raises(UsageError, match=text):
            run()  # type: ignore[operator]

    told(lambda: failures.preset("hnp"), "no failure rates are called")
    told(lambda: system_named("best"), "no system is called")
    told(lambda: concurrent(2, 2, 3, "x"), "can lose at most 2")
    told(lambda: draw(PRESETS["hpn"], 0, 8, 1, "x"), "must be positive")
    told(lambda: Rates("r", -1.0, 0.0, 0.0, "test"), "none may be negative")
    told(lambda: Restart(interval_h=0.0), "some interval")
    told(lambda: slowdown(JOB, SYSTEMS[0], [1]), "losses of 1 hosts")
    told(lambda: montecarlo.overheads(JOB, (1, 2), patterns=1), "do not suffice")
    path = tmp_path / "cuts.csv"
    path.write_text("date,count\n2023-04-19,1\n2023-04-20,many\n")
    told(lambda: failures.read_trace(path, nics=1, first=date(2023, 4, 19), last=date(2023, 5, 1)), "cuts.csv:3")
