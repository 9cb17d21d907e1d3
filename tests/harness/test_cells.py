"""The live table: what it says of every cell, what it hides on a small terminal, and how long is left."""

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from harness.experiment.file import load
from harness.sweep.cells import CellTable
from harness.sweep.console import ConsoleProgress, drawn
from harness.sweep.plan import Trial, plan
from harness.sweep.record import lost_record
from reports import trial as stored
from reports.trial import Evidence, Iteration

ALLREDUCE = Path(__file__).parents[2] / "experiments" / "allreduce.toml"
TRIALS = plan(load(ALLREDUCE, ["sweep.repeats=2", "sweep.order=listed"]))


def record(trial: Trial, status: str = "ok") -> stored.Trial:
    taken = [
        Iteration(iteration=i, phase=phase, t_ns=i, duration_ns=1, algbw_gbs=0, busbw_gbs=value)  # type: ignore[arg-type]
        for i, (phase, value) in enumerate((("before", 0.18), ("after", 0.12)))
    ]
    blank = lost_record(trial, 1, trial.variant.experiment.workload, "")
    return blank.model_copy(update={"status": status, "expected": True, "iterations": tuple(taken)})


def text(table: CellTable, rows: int = 50, width: int = 120) -> str:
    file = StringIO()
    out = Console(width=width, height=40, file=file)
    out.print(drawn(table, rows, out))
    return file.getvalue()


def board_with(done: int) -> CellTable:
    table = CellTable()
    table.begin(TRIALS, {}, retries=4)
    for trial in TRIALS[:done]:
        table.trial(trial, 1)
        table.step("watch")
        table.ended(trial, record(trial), 2.0, final=True)
    return table


def test_every_cell_shows_what_is_done_and_what_it_measured() -> None:
    shown = text(board_with(1))
    assert f"{TRIALS[0].cell}" in shown
    (first,) = (line.split() for line in shown.splitlines() if line.startswith(TRIALS[0].cell) and "/18" not in line)
    assert first == [TRIALS[0].cell, "1/2", "1", "ok", "0.18", "0.12"]
    assert "1/18, about 34 s left" in shown
    assert f"{TRIALS[0].trial_id}: watch" in shown


@pytest.mark.parametrize("width", [120, 55, 50, 40, 30, 24])
def test_on_a_narrow_terminal_no_figure_is_cut(width: int) -> None:
    """At 40 columns every column was cut: ``1…`` of 1/2."""
    headings, *lines = text(board_with(3), width=width).splitlines()
    cells, feet = lines[: len(TRIALS) // 2], lines[len(TRIALS) // 2 :]
    assert all(len(line) <= width for line in lines)
    assert headings.split()[:2] == ["cell", "done"]
    for line, cell in zip(cells, board_with(3).cells.values(), strict=True):
        name, done, *rest = line.split()
        begin, _, end = name.partition("…")
        assert cell.name.startswith(begin) and cell.name.endswith(end) and done == f"{cell.done}/{cell.planned}"
        assert " ".join(rest) in ("", cell.statuses, f"{cell.statuses} 0.18", f"{cell.statuses} 0.18 0.12")
    assert feet[0].startswith("3/18, about 30 s left") and len(feet) == (1 if width >= 55 else 2)


def test_a_small_terminal_shows_what_changed_last_and_counts_the_rest() -> None:
    shown = text(board_with(5), rows=3)
    assert [trial.cell in shown for trial in TRIALS[:6]] == [False, False, True, True, True, False]
    assert "6 more cells" in shown


def test_what_an_earlier_sweep_has_done_counts_and_what_is_tried_again_does_not() -> None:
    table = CellTable()
    done = {TRIALS[0].trial_id: record(TRIALS[0]), TRIALS[1].trial_id: record(TRIALS[1], "inconclusive")}
    table.begin(TRIALS, done, retries=4)
    assert (table.done, table.planned, table.left_s) == (1, 18, None)
    table.ended(TRIALS[1], record(TRIALS[1], "inconclusive"), 1.0, final=False)
    assert table.done == 1


def test_on_a_terminal_the_table_lives_and_elsewhere_there_are_lines_only(tmp_path: Path) -> None:
    for terminal in (True, False):
        out = tmp_path / f"{terminal}.txt"
        with out.open("w") as file:
            progress = ConsoleProgress(Console(file=file, force_terminal=terminal, width=120, height=40))
            progress.begin(TRIALS, {})
            progress.trial(TRIALS[0], 1)
            progress.told("step", {"step": "ready"})
            progress.ended(TRIALS[0], record(TRIALS[0]), 1.0, final=True)
            progress.end()
        assert ("about 17 s left" in out.read_text()) is terminal
        assert "[ 1/18] failstop" in out.read_text()


@pytest.mark.parametrize("columns", [20, 30, 39, 40, 80])
def test_a_terminal_too_narrow_for_the_table_gets_the_lines_alone(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    out = StringIO()
    progress = ConsoleProgress(Console(file=out, force_terminal=True, width=max(40, columns), height=40))
    progress.begin(TRIALS, {})
    progress.ended(TRIALS[0], record(TRIALS[0]), 1.0, final=True)
    progress.end()
    assert ("left" in out.getvalue()) is ("\x1b[1A" in out.getvalue()) is (columns >= 40)
    assert "[ 1/18] failstop" in out.getvalue()


def test_the_lines_of_a_sweep_stand_one_below_the_other() -> None:
    simulated = load(ALLREDUCE.with_name("simulator_agrees.toml"))
    trials = plan(simulated)[: len(simulated.systems)]
    lines = StringIO()
    progress = ConsoleProgress(Console(file=lines, width=200))
    progress.begin(trials, {})
    for trial in trials:
        is_simulated = simulated.backend_of(trial.system) == "simulate"
        found = record(trial)
        if is_simulated:
            found = found.model_copy(update={"evidence": Evidence(simulated={"alpha_s": 0})})
        progress.ended(trial, found, 1.0, final=True)
    shown = lines.getvalue().splitlines()
    assert any("(simulated)" in line for line in shown) and not all("(simulated)" in line for line in shown)
    assert len({line.index(" ok ") for line in shown}) == 1
