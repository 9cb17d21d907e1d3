"""Published experiments: facts keep their numbers, models are the known formulas, measured values find their lines."""

import csv
import json
from pathlib import Path

import pandas as pd
import pytest
from synthetic_run import make_run

from harness.experiment.examples import named as named_experiment
from harness.experiment.file import load
from harness.workloads.serving import ServingWorkload
from r2ccl_core.model.token_bucket import TokenBucket
from reports import stats
from reports.errors import ReportError
from reports.figures import bound_gap, choice_map, overhead, side_by_side
from reports.load import load_folder
from reports.measures import trial_frame
from reports.reproduce import cloudlab, jobs, result, serving, theory
from reports.reproduce import overhead as model
from reports.reproduce.catalog import ENTRIES, find
from reports.reproduce.entry import Entry, Line, Scale, lines, scaled_down
from reports.wording import NOTHING

HERE = Scale(hosts=3, nics=3, ranks=3, nic_bit_s=500e6, size_bytes=64 << 20)


@pytest.fixture(scope="module")
def frame(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    folder = make_run(tmp_path_factory.mktemp("runs"), sizes={64 << 20: 6}, repeats=3, systems={"balance": 2})
    return trial_frame([load_folder(folder)])


def named(found: list[Line]) -> dict[str, Line]:
    return {line.fact.key: line for line in found}


def test_every_name_is_there_once_and_every_number_has_a_source() -> None:
    names = [entry.name for entry in ENTRIES]
    assert len(set(names)) == len(names)
    for entry in ENTRIES:
        assert entry.facts
        assert len({fact.key for fact in entry.facts}) == len(entry.facts)
        assert all(fact.source for fact in entry.facts)
        assert entry.trials or entry.missing, "what cannot be measured says why"


def test_models_only_speak_of_facts_that_there_are() -> None:
    for entry in ENTRIES:
        if entry.model and entry.scale and entry.name not in ("mc-512", "optcc-bound", "planner"):
            known = {fact.key for fact in entry.facts}
            # What is said besides is for entries that share a model.
            assert known & set(entry.model(entry.scale))


def test_a_name_that_is_not_there_has_a_nearest_one() -> None:
    with pytest.raises(ReportError, match="did you mean 'cloudlab-07'"):
        find("cloudlab-7")


def test_the_published_formula_is_within_a_percent_of_the_published_k_sweep() -> None:
    for line in lines(find("cloudlab-07")):
        assert line.published_over_model == pytest.approx(1, abs=0.01)


def test_models_at_the_published_scale() -> None:
    times = named(lines(find("cloudlab-01")))
    assert times["healthy"].model == pytest.approx(2 * 5 / 6 * 4 * 2**30 / 3.75e9)
    assert times["ratio"].model == pytest.approx(1.5)
    moved = named(lines(find("cloudlab-bytes")))
    assert moved["r2cc_degraded"].model == pytest.approx(10 / 6 * 2 / 3 + 1 / 3)
    assert moved["r2cc_other"].model == pytest.approx(10 / 6 * 2 / 3 + 1 / 3 + 2 * 3 / 4 / 3)
    # Frames have headers: a few percent more than the payload, the same few in every line.
    assert all(1.02 < line.published_over_model < 1.06 for line in moved.values() if line.published_over_model)


@pytest.mark.parametrize("gpus", [1, 2])
def test_what_the_schedule_moves_here_is_what_the_model_says(gpus: int) -> None:
    from r2ccl_core.schedules import r2cc_all_reduce
    from reports.traffic import received_bytes

    schedule = r2cc_all_reduce.all_reduce([1, 2 / 3, 1], gpus=gpus, pipeline=4, chunks=4096)
    degraded, other = (received_bytes(schedule, 1 << 24, gpus)[host] / (1 << 24) for host in (1, 0))
    moved = named(lines(find("cloudlab-bytes"), HERE._replace(ranks=3 * gpus)))
    assert moved["r2cc_degraded"].model_here == pytest.approx(degraded, rel=0.01)
    assert moved["r2cc_other"].model_here == pytest.approx(other, rel=0.01)


def test_a_run_answers_for_its_lines_at_its_own_scale(frame: pd.DataFrame) -> None:
    found = named(lines(find("cloudlab-01"), HERE, frame))
    healthy, ratio = found["healthy"], found["ratio"]
    assert healthy.measured is not None
    assert healthy.measured.median == pytest.approx(frame["before_ms"].median() / 1e3)
    assert healthy.model_here == pytest.approx(4 / 3 * (64 << 20) / (3 * 500e6 / 8))
    assert healthy.measured_over_model == pytest.approx(1 / 0.945, rel=0.03)
    assert healthy.measured_over_published is None, "a time has a scale"
    assert ratio.measured is not None
    assert ratio.measured_over_published == pytest.approx(ratio.measured.median / 1.49)
    told = scaled_down(find("cloudlab-01"), HERE)
    assert "ranks: 3 here, 6 published" in told
    assert "rate of a NIC: 500 Mbit/s here, 10 Gbit/s published" in told
    assert not any("NICs per host" in text for text in told)
    assert any("vector" in text for text in told)
    served = scaled_down(find("infer"), HERE._replace(size_bytes=0))
    assert "hosts: 3 here, 2 published" in served
    assert not any("vector" in text for text in served), "serving has none"


def test_the_model_of_our_replica_is_of_the_trials_that_measure_it() -> None:
    workload = load(named_experiment("serving_overhead"), []).workload
    assert isinstance(workload, ServingWorkload)
    assert (workload.prompt, workload.generated) == serving.OWN_REQUEST
    assert workload.arrivals_a_second == serving.OWN_ARRIVALS
    pace_s = (serving.OWN_PREFILL_MS / 1e3, serving.OWN_STEP_MS / 1e3)
    assert (workload.prefill_at_least_s, workload.step_at_least_s) == pace_s
    assert TokenBucket.for_rate(10e6).burst_bytes == serving.OWN_BURST


def test_bytes_are_those_that_the_counters_saw(frame: pd.DataFrame) -> None:
    found = named(lines(find("cloudlab-bytes"), HERE, frame))
    assert found["healthy"].measured is not None
    assert found["healthy"].measured.n == 9, "three hosts in three repeats"
    assert found["r2cc_other"].measured is None


def test_our_simulations_are_near_the_independent_ones() -> None:
    for line in lines(find("optcc-bound")):
        if line.fact.key.startswith("bound"):
            assert line.published_over_model == pytest.approx(1, abs=0.001)
    for (p, x), reference in theory.FOREST.items():
        assert theory.simulated("forest", p, x) == pytest.approx(reference, rel=0.01)


def test_no_simulated_schedule_is_below_the_bound() -> None:
    for name in theory.GAP_ALGORITHMS:
        for p, x in ((3, 0.5), (3, 0.875), (8, 0.25), (8, 0.75)):
            ratio = theory.simulated(name, p, x)
            assert ratio is None or ratio > theory.bound(p, x) * (1 - 1e-9)


def test_overhead_is_the_share_that_waits_times_the_slowdown() -> None:
    assert model.overhead(0.1, 1.5) == pytest.approx(0.05)
    assert model.share_of(0.05, 1.5) == pytest.approx(0.1)
    one = model.cluster(4, 8, [1])
    assert model.ratio(one, "hot repair") == pytest.approx(2)
    assert model.ratio(one, "Balance") == pytest.approx(8 / 7)
    assert model.ratio(model.cluster(4, 8, [2, 1]), "Balance") == pytest.approx(8 / 6)
    assert theory.bound(4, 7 / 8) <= model.ratio(one, "planner's choice") <= 8 / 7


def test_draws_are_seeded_and_leave_every_host_a_nic() -> None:
    first, again = (list(model.draws(4, 2, 4, 20)) for _ in range(2))
    assert first == again
    assert all(min(topology.rates_bytes_s) > 0 for topology in first)
    assert all(sum(nic.remaining == 0 for host in t.hosts for nic in host.nics) == 4 for t in first)


def test_more_failures_cost_more_and_the_choice_costs_least() -> None:
    table = model.table("training", 0.1, 8, 8, range(4), count=6)
    by = table.pivot_table(index="failures", columns="strategy", values="overhead")
    assert (by.loc[0].abs() < 1e-9).all()
    assert by["Balance"].is_monotonic_increasing
    assert (by["planner's choice"] <= by["Balance"] + 1e-9).all()
    assert (by["Balance"] <= by["hot repair"] + 1e-9).all()
    assert (table["low"] <= table["overhead"] + 1e-9).all()


def test_the_monte_carlo_is_calibrated_on_one_failure_only() -> None:
    found = named(lines(find("mc-512")))
    assert found["k1"].model == pytest.approx(1.5, abs=0.01)
    assert found["k10"].model is not None
    assert 1.5 < found["k10"].model < 4.3, "said to differ, and told so"


@pytest.mark.parametrize("name", ["cloudlab-01", "cloudlab-07", "cloudlab-09", "planner"])
def test_a_result_folder_reads_back(tmp_path: Path, name: str, frame: pd.DataFrame) -> None:
    entry = find(name)
    measured = frame if name == "cloudlab-01" else None
    found = lines(entry, HERE if measured is not None else None, measured)
    paths = {path.name for path in result.write(entry, found, ["a note"], tmp_path, measured, "runs/x")}
    assert {"table.md", "table.csv", "result.json"} <= paths
    assert ("figure.pdf" in paths) == (name != "cloudlab-09")
    record = json.loads((tmp_path / "result.json").read_text(), parse_constant=lambda c: pytest.fail(c))
    assert [line["key"] for line in record["lines"]] == [fact.key for fact in entry.facts]
    rows = list(csv.DictReader((tmp_path / "table.csv").read_text().splitlines()))
    assert [float(row["published"]) for row in rows] == [fact.value for fact in entry.facts]
    assert "a note" in (tmp_path / "table.md").read_text()
    if name == "cloudlab-01":
        assert float(rows[0]["measured_median"]) == pytest.approx(frame["before_ms"].median() / 1e3)


def test_side_by_side_draws_the_ratios(frame: pd.DataFrame) -> None:
    shown = result.ratios(lines(find("cloudlab-01"), HERE, frame))
    figure = side_by_side.draw(shown)
    ax = figure.axes[0]
    (published,) = [line for line in ax.lines if line.get_marker() == "X"]
    assert list(published.get_xdata()) == pytest.approx(list(shown["published"]), nan_ok=True)
    (measured,) = [line for line in ax.lines if line.get_marker() == "o"]
    assert list(measured.get_xdata()) == pytest.approx(list(shown["measured"]), nan_ok=True)
    assert "3 repeats per measured point" in side_by_side.caption(shown)


def test_the_gap_map_has_every_cell_in_percent() -> None:
    gaps = pd.DataFrame(
        [("ring", p, x, p * x / 10) for p in (3, 8) for x in (0.5, 0.75)],
        columns=["algorithm", "hosts", "remaining", "gap"],
    )
    ax = bound_gap.draw(gaps).axes[0]
    assert [text.get_text() for text in ax.texts] == ["15", "22", "40", "60"]


def test_the_choice_map_has_a_letter_in_every_cell() -> None:
    choices = pd.DataFrame(
        [(3, 0.5, 1024, "tree"), (3, 0.5, 4096, "forest"), (3, 1.0, 1024, "ring"), (3, 1.0, 4096, "novel")],
        columns=["hosts", "remaining", "size_bytes", "algorithm"],
    )
    ax = choice_map.draw(choices).axes[0]
    assert [text.get_text() for text in ax.texts] == ["T", "F", "R", "N"]


def test_overheads_are_drawn_as_they_are() -> None:
    table = jobs.monte_carlo((1, 2), 6)
    ax = overhead.draw(table).axes[0]
    looks = dict(zip(overhead.strategies_of(table), ax.lines[::2], strict=True))
    own = table[(table["strategy"] == "Balance") & (table["source"] == "model")]
    assert list(looks["Balance"].get_ydata()) == pytest.approx(list(100 * own["overhead"]))
    assert "3 random draws per point" in overhead.caption(table)


def test_a_range_is_held_against_what_is_known() -> None:
    found = lines(find("coll-all_reduce"))
    assert [line.place for line in found] == ["within", "within"]
    slower = Line(found[0].fact, 87.5, stats.estimate([70.0, 71.0]), 87.5)
    assert slower.place == "below"
    assert result.row(slower)[-1] == "below"
    at = result.HEADINGS.index("published / model")
    assert (result.row(found[0])[at], result.row(found[0])[-1]) == ("within", NOTHING)
    assert isinstance(find("coll-all_reduce"), Entry)
    assert cloudlab.K_SWEEP[4] == 1.376
