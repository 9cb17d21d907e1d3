"""Targets: what is reached, what is missed, and what was not measured."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from synthetic_run import make_run

from reports.headline import Line, headline
from reports.load import load_folder
from reports.measures import trial_frame
from reports.stats import Estimate
from reports.targets import Target, targets


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[Line]:
    folder = make_run(tmp_path_factory.mktemp("runs"), sizes={1 << 20: 8, 64 << 20: 6}, repeats=3)
    return headline(trial_frame([load_folder(folder)]))


def changed(line: Line, maps: dict[str, dict[str, Any]]) -> Line:
    return replace(line, **{name: {**getattr(line, name), **values} for name, values in maps.items()})


def named(found: list[Target], start: str) -> Target:
    return next(target for target in found if target.what.startswith(start))


def test_a_good_run_reaches_every_target(lines: list[Line]) -> None:
    found = targets(lines)
    assert [t.what for t in found if not t.met] == []
    assert len(found) == 7


def test_balance_is_held_against_1_55(lines: list[Line]) -> None:
    assert named(targets(lines), "T/T0 of balance at 64MiB").wanted == "at most 1.55"


@pytest.mark.parametrize(
    ("start", "change"),
    [
        ("T/T0 of balance", {"estimates": {"slowdown": Estimate(1.56, 1.5, 1.6, 5)}}),
        ("Healthy", {"estimates": {"share": Estimate(0.89, 0.88, 0.9, 5)}}),
        ("What the hit", {"worst": {"hit_cost_ms": 100.5}}),
        ("Stall of the hit", {"worst": {"stall_ms": 100.5}}),
        ("Wrong", {"told": {"wrong": 1.0}}),
    ],
)
def test_each_target_is_missed_for_its_own_reason(
    lines: list[Line], start: str, change: dict[str, dict[str, Any]]
) -> None:
    worse = [changed(line, change) if line.system == "balance" else line for line in lines]
    missed = [t for t in targets(worse) if not t.met]
    assert [t.what.startswith(start) for t in missed] == [True]


@pytest.mark.parametrize(
    ("start", "change", "wanted", "measured"),
    [
        ("T/T0 of balance at 64MiB", {"estimates": {"slowdown": Estimate(1.5503, 1.5, 1.6, 5)}}, "1.55", "1.5503"),
        ("Healthy", {"estimates": {"share": Estimate(0.8998, 0.88, 0.9, 5)}}, "90 %", "89.98 %"),
        ("What the hit", {"worst": {"hit_cost_ms": 100.2}}, "100 ms", "100.2 ms"),
    ],
)
def test_a_target_that_is_just_missed_is_seen_to_be(
    lines: list[Line], start: str, change: dict[str, dict[str, Any]], wanted: str, measured: str
) -> None:
    target = named(targets([changed(ln, change) if ln.system == "balance" else ln for ln in lines]), start)
    assert (target.wanted.removeprefix("at most ").removeprefix("at least "), target.measured) == (wanted, measured)
    assert not target.met


def test_a_cost_is_not_held_where_what_was_hit_lasted_until_the_repair(lines: list[Line]) -> None:
    """The system that lost most has no such cost, and the others held the target for it."""
    still = [
        replace(ln, until_repair=3) if ln.system == "hot_repair" and ln.size_bytes == 64 << 20 else ln for ln in lines
    ]
    for start, metric in (("What the hit", "hit_cost_ms"), ("Stall of the hit", "stall_ms")):
        found = named(targets(still), start)
        assert found.met is None
        assert found.detail.endswith(
            "; not of 3 trials, first hot_repair at 64MiB: what was hit lasted until the repair"
        )
        worse = [changed(ln, {"worst": {metric: 100.5}}) if ln.system == "balance" else ln for ln in still]
        assert named(targets(worse), start).met is False
        assert named(targets([replace(ln, comes_and_goes=True) for ln in still]), start).met, "of which it is not"


def test_a_quick_error_is_told_in_milliseconds(lines: list[Line]) -> None:
    assert named(targets(lines), "failstop: from the fault").measured.endswith(" ms")


def test_a_late_error_misses(lines: list[Line]) -> None:
    late = [
        changed(line, {"worst": {"error_after_ms": 5001.0}}) if line["error_after_ms"].n else line for line in lines
    ]
    assert not named(targets(late), "failstop: from the fault").met


def test_what_was_not_measured_has_no_line(tmp_path: Path) -> None:
    folder = make_run(tmp_path, sizes={1 << 20: 4}, repeats=2, fault=False)
    found = targets(headline(trial_frame([load_folder(folder)])))
    assert [t.what.split()[0] for t in found] == ["Healthy", "Wrong"]


def beside_perftest(lines: list[Line], share: float, kind: str, transport: str = "verbs") -> list[Target]:
    """The targets where `balance` has this share of the bandwidth that perftest reached on devices of that type."""
    ours = next(line for line in lines if line.system == "balance" and line.size_bytes == 64 << 20)
    limit_gbs = ours["before_gbs"].median / share
    estimates = {**ours.estimates, "before_gbs": Estimate(limit_gbs, limit_gbs, limit_gbs, 1)}
    limit = replace(ours, system="ib_write_bw", rdma_type=kind, estimates=estimates)
    return targets([limit, *(replace(line, transport=transport) if line is ours else line for line in lines)])


WRITE_BW = "Healthy bus bandwidth of balance at 64MiB over ib_write_bw's on"


@pytest.mark.parametrize(("share", "met"), [(0.985, True), (0.98, True), (0.975, False)])
def test_rdma_is_held_against_ib_write_bw_on_hardware(lines: list[Line], share: float, met: bool) -> None:
    target = named(beside_perftest(lines, share, "mlx5"), f"{WRITE_BW} mlx5 devices")
    assert (target.wanted, target.measured, target.met) == ("at least 98 %", f"{100 * share:.1f} %", met)
    assert target.judged


@pytest.mark.parametrize("share", [0.5, 1.5])
def test_soft_roce_is_told_and_not_judged(lines: list[Line], share: float) -> None:
    target = named(beside_perftest(lines, share, "rxe"), f"{WRITE_BW} rxe devices")
    assert (target.measured, target.met, target.judged) == (f"{100 * share:.1f} %", None, False)
    assert target.detail.startswith("rxe is no hardware, so this is not judged; ib_write_bw ")


def test_what_goes_by_tcp_is_not_held_against_it(lines: list[Line]) -> None:
    found = beside_perftest(lines, 0.5, "mlx5", transport="auto")
    assert [t.what for t in found if "ib_write_bw" in t.what] == []
    assert len(found) == len(targets(lines)), "perftest itself is held against nothing"
