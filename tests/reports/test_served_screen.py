"""The first screen, summary and terminal of serving answer what its users ask, and never compare different requests."""

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from chromium_page import ChromiumPage, chromium
from rich.console import Console
from served_trials import ANSWERS, trial
from synthetic_run import make_run, stored_run

from harness.sweep.console import ConsoleProgress
from harness.sweep.summary import table
from reports.figures import overview as figure
from reports.headline import Line, headline
from reports.load import load_folders
from reports.measures import trial_frame
from reports.overview import first_tables, overview, remarks
from reports.report import write_report
from reports.screens import MIXED, SCREENS, UNTRAINED, screen_for, screen_of
from reports.served import _counts, noise
from reports.setting import Setting
from reports.summary import scope, sentences
from reports.trial import Trial

TRIALS = (
    trial("healthy_before", ANSWERS), trial("healthy_after", ANSWERS),
    trial("transfer", ANSWERS, 1.2),
    trial("flaps", ANSWERS, 2.0, trial_id="flaps"),
)  # fmt: skip
STOPPED = tuple(
    one.model_copy(update={"system": "failstop", "mode": 0, "trial_id": f"failstop-{one.trial_id}"})
    for one in (
        *TRIALS[:2],
        trial("transfer", ANSWERS[:2], status="failed"),
        trial("flaps", ANSWERS[:2], status="failed", trial_id="flaps"),
    )
)


def lines_of(tmp_path: Path, *trials: Trial) -> list[Line]:
    return headline(trial_frame(load_folders([stored_run(tmp_path, "serving", *trials)])))


def test_the_first_table_compares_requests_with_the_same_healthy_ones(tmp_path: Path) -> None:
    lines = lines_of(tmp_path, *TRIALS, *STOPPED)
    rows = {row.system: row for row in overview(lines)}
    ours, other = rows["balance"], rows["failstop"]
    assert ours["usual"].text == "210" and "5 ms per token" in ours["usual"].detail
    for phase, ms in (("during", "360 to 600"), ("after", "249 to 415")):
        cell = ours[f"ttft_{phase}"]
        assert cell.text == "+20 to +100" and cell.detail.splitlines() == ["worst, +100 %: flaps", f"they took {ms} ms"]
        assert ours[f"tpot_{phase}"].text == "0"
    assert ours["requests_hurt"].text == "1 to 3" and ours["requests_again"].text == "2"
    under = {column.name: column.under for column in screen_of(lines).columns}
    assert (under["requests_hurt"], under["requests_again"]) == ("requests, median", "requests"), "3.5 is no count"
    assert (ours["requests_unanswered"].text, ours["answers_differ"].text) == ("0", "0")
    assert other["ttft_during"].text == "stopped" and other["ttft_after"].text == "\N{EN DASH}"
    assert other["requests_unanswered"].text == "6" and other["requests_unanswered"].bad
    assert other["answers_differ"].text == "0", "no answer is not another one"


def test_no_speed_of_different_requests_is_on_the_page(tmp_path: Path) -> None:
    page = write_report(stored_run(tmp_path, "serving", *TRIALS)).read_text()
    first = page[page.index('<section id="first"') : page.index('<section id="summary"')]
    assert "T/T0" not in first and "time lost" not in first and "TTFT during" in first and "% over healthy" in first
    assert "Times to tokens over those of healthy trials" in first


def test_the_first_figure_is_of_the_same_numbers(tmp_path: Path) -> None:
    lines = lines_of(tmp_path, *TRIALS, *STOPPED)
    drawn = figure.draw(lines)
    assert [ax.get_xlabel() for ax in drawn.axes] == [panel.axis for panel in screen_of(lines).panels]
    assert sorted(text.get_text() for ax in drawn.axes for text in ax.texts) == ["stopped", "stopped"]
    told = figure.result(lines)
    assert "balance, transfer: time to first token, over healthy: +20 % during, +20 % after" in told
    assert "failstop, transfer: stopped" in told and "lost" not in told
    assert "same requests in the healthy trials" in figure.caption(lines)


def test_without_healthy_trials_the_page_says_how_to_get_them(tmp_path: Path) -> None:
    lines = lines_of(tmp_path, TRIALS[2])
    (told,) = remarks(lines)
    assert told.startswith("There is no healthy trial") and "sweep.healthy" in told
    page = write_report(stored_run(tmp_path / "page", "serving", TRIALS[2])).read_text()
    first = page[page.index('<section id="first"') : page.index('<section id="summary"')]
    assert "<figure>" in first and "over healthy" not in first, "nothing is over a healthy value"
    with_stopped = lines_of(tmp_path / "more", TRIALS[2], STOPPED[2])
    assert [ax.get_xlabel() for ax in figure.draw(with_stopped).axes] == [
        "time to first token (ms)",
        "time per later token (ms)",
    ]
    told = figure.result(with_stopped)
    assert "balance, transfer: time to first token: 360 ms during, 249 ms after" in told
    assert "failstop, transfer: stopped" in told and "healthy" not in figure.caption(with_stopped)
    axes = figure.draw(lines_of(tmp_path / "stopped", STOPPED[2])).axes
    assert "no healthy trial to compare with" in [text.get_text() for ax in axes for text in ax.texts]
    assert not any(ax.lines for ax in axes), "the line of no difference went through these words"


def test_without_healthy_trials_the_times_that_are_known_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = lines_of(tmp_path, TRIALS[2], TRIALS[3])
    (row,) = overview(lines)
    texts = [row[f"{name}_{phase}"].text for name in ("ttft", "tpot") for phase in ("during", "after")]
    assert texts == ["360 to 600", "249 to 415", "5", "5"]
    assert {one.under for one in screen_of(lines).columns if one.name[:4] in ("ttft", "tpot")} == {"ms"}
    ConsoleProgress(Console(width=140, force_terminal=False))._print_summary(table([TRIALS[2], TRIALS[3]]))
    shown = capsys.readouterr().out
    assert all(number in shown for number in ("360", "600", "249", "415")) and "%" not in shown


def test_the_noise_before_any_failure_is_told(tmp_path: Path) -> None:
    (told,) = remarks(lines_of(tmp_path, *TRIALS))
    assert "by 0 to +100 % to the first token: so much is this machine's noise" in told


def test_noise_of_opposite_signs_does_not_cancel(tmp_path: Path) -> None:
    """Trials at -43 and +76 % were told by their median, +17 %."""
    (line, *_) = [line for line in lines_of(tmp_path, *TRIALS) if line["before_ttft_over"].n]
    apart = replace(line, ends=line.ends | {"before_ttft_over": (-0.43, 0.76), "before_tpot_over": (0.01, 0.02)})
    assert "by \N{MINUS SIGN}43 to +76 % to the first token: so much" in noise([apart])[0]


def test_the_ends_of_a_cell_are_its_least_and_greatest_trial(tmp_path: Path) -> None:
    frame = trial_frame(load_folders([stored_run(tmp_path, "serving", *TRIALS)]))
    made = frame.assign(before_ttft_over=[float(number) for number in range(len(frame))])
    for line in headline(made):
        own = made[(made["scenario"] == line.scenario) & (made["system"] == line.system)]["before_ttft_over"]
        assert line.ends["before_ttft_over"] == (own.min(), own.max())


def test_one_request_that_was_hurt_was_slower() -> None:
    part = pd.DataFrame(
        {"requests_hurt": [1.0], "requests_again": [0], "answers_differ": [0], "requests_unanswered": [0]}
    )
    assert _counts(part)[0] == "1 was slower than the slowest healthy one (median of 1 trial)"
    assert _counts(part.assign(requests_hurt=2.0))[0].startswith("2 were slower")


def test_the_summary_has_no_remedy_of_another_workload(tmp_path: Path) -> None:
    strategy = {"name": "restart", "mode": 0, "env": {"SERVE_ON_FAILURE": "restart"}}
    again = [one.model_copy(update={"system": "restart", "mode": 0, "trial_id": f"again-{i}"})
             for i, one in enumerate(TRIALS)]  # fmt: skip
    folder = stored_run(tmp_path, "serving", *again)
    run = folder / "run.json"
    run.write_text(
        run.read_text().replace('"name": "serving"', f'"name": "serving", "system": [{json.dumps(strategy)}]')
    )
    frame = trial_frame(load_folders([folder]))
    told = " ".join([scope(frame, Setting()), *sentences(frame, [])])
    assert "2 with a fault during a request" in told
    assert "restart (stops at the first loss, then its processes start again) went on in 2 of 2 scenarios." in told
    assert "requests under way when it came took 360 ms to the first token (20 % more) and 5 ms for each" in told
    assert "every answer was the healthy one" in told
    for wrong in ("Time lost by fault", "T/T0", "workload.iterations", "comparable", "a step", "as NCCL is", "Too few"):
        assert wrong not in told, wrong


def test_no_time_is_lost_by_fault_where_requests_are_served(tmp_path: Path) -> None:
    frame = trial_frame(load_folders([stored_run(tmp_path, "serving", *TRIALS, *balanced_again())]))
    assert "Time lost by fault" not in " ".join(sentences(frame, []))


def balanced_again() -> list[Trial]:
    """The same trials of another system that went on."""
    return [one.model_copy(update={"system": "repair", "mode": 1, "trial_id": f"repair-{i}"})
            for i, one in enumerate(TRIALS)]  # fmt: skip


def test_the_terminal_names_the_same_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = table([*TRIALS, *STOPPED])
    own = {(line.system, line.points): line for line in lines}
    assert own["balance", "flaps"].values["during_ttft_over"] == pytest.approx(1.0)
    assert own["failstop", "flaps"].values["requests_unanswered"] == 3
    ConsoleProgress(Console(width=140, force_terminal=False))._print_summary(lines)
    shown = capsys.readouterr().out
    assert "+100" in shown and "%: over the same requests of healthy trials" in shown
    assert "hurt" in shown and "T/T0" not in shown


def test_a_narrow_terminal_names_the_unit_of_every_number(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ConsoleProgress(Console(width=80, force_terminal=False))._print_summary(table(TRIALS))
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    assert "TTFT during +100 %" in " ".join(shown.split())
    assert "\N{EN DASH} balance" not in shown, "requests have no size"


def test_a_workload_has_one_screen_and_several_share_a_figure(tmp_path: Path) -> None:
    served = stored_run(tmp_path, "serving", *TRIALS)
    collective = make_run(tmp_path, repeats=1, sizes={1 << 20: 4}, counters=False)
    lines = headline(trial_frame(load_folders([served, collective])))
    assert screen_of(lines) is UNTRAINED and set(SCREENS) == {"collective", "training", "serving"}
    assert screen_for(["training", "serving"], lambda metric: True) is MIXED and "Other losses" in MIXED.terms
    assert "Other losses" not in UNTRAINED.terms, "neither run trains"
    assert figure.caption(lines).startswith("Time of an iteration, healthy (hollow) and after"), "as its axis says"
    assert "(of collective alone)" in figure.caption(lines)
    assert all(line.workload == "collective" for row in figure.shown(lines) for line in row)


def test_requests_of_healthy_trials_alone_have_no_columns_of_a_failure(tmp_path: Path) -> None:
    healthy = [trial for trial in TRIALS if not trial.faults]
    lines = lines_of(tmp_path, *healthy)
    (table,) = first_tables(lines)
    assert [column.heading for column in table.columns] == ["TTFT healthy", "other"]
    assert not any("fault" in told for told in table.terms.values()) and not figure.tells(lines)


def test_each_kind_of_workload_has_a_first_table_of_its_own(tmp_path: Path) -> None:
    served = stored_run(tmp_path, "serving", *TRIALS, *STOPPED)
    collective = make_run(tmp_path, repeats=1, sizes={1 << 20: 4}, counters=False)
    frame = trial_frame(load_folders([served, collective]))
    tables = first_tables(headline(frame))
    assert [(table.workload, table.screen) for table in tables] == [
        ("serving", SCREENS["serving"][0]),
        ("collective", SCREENS["collective"][0]),
    ]
    rows = {row.system: row for table in tables for row in table.rows}
    stopped = rows["failstop (run 1)"]
    assert stopped["ttft_during"].text == "stopped" and stopped["requests_unanswered"].text == "6"
    assert rows["balance (run 2)"]["slowdown"].text != "\N{EN DASH}"
    page = write_report([served, collective], tmp_path / "both").read_text()
    first = page[page.index('<section id="first"') : page.index('<section id="summary"')]
    assert first.index("<h2>Serving</h2>") < first.index("TTFT during") < first.index("<h2>Collective</h2>")
    lead = page[: page.index("<main>")]
    assert 'class="lead"' not in lead, "the description of one run is not that of both"
    assert "One of three NICs goes down" in lead
    assert first.count("<table") == 2 and first.count('id="details"') == 1


@pytest.mark.slow
@pytest.mark.skipif(chromium() is None, reason="no chromium on this machine")
def test_on_paper_no_number_is_cut_and_letters_are_readable(tmp_path: Path) -> None:
    with ChromiumPage(chromium() or "", tmp_path / "profile") as page:
        page.open(write_report(stored_run(tmp_path, "serving", *TRIALS)))
        page.send("Emulation.setEmulatedMedia", media="print")
        # A4 less its margins of 12 mm, in CSS pixels.
        page.send("Emulation.setDeviceMetricsOverride", width=703, height=1032, deviceScaleFactor=1, mobile=False)
        cells = "[...document.querySelectorAll('table.numbers td')]"
        assert page.evaluate(f"{cells}.every(c => c.getBoundingClientRect().right <= 703 && c.offsetWidth > 0)")
        assert page.evaluate(f"{cells}.every(c => c.scrollWidth <= c.clientWidth + 1)")
        assert page.evaluate(f"{cells}.every(c => parseFloat(getComputedStyle(c).fontSize) >= 10)"), "7.5 pt"
        assert page.evaluate("document.querySelector('#first table').scrollWidth") <= 703
        page.send("Emulation.setEmulatedMedia", media="screen")
        for width in (420, 1280):
            page.send(
                "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600
            )
            first = "document.querySelector('table.overview')"
            assert page.evaluate(f"{first}.scrollWidth <= {first}.parentElement.clientWidth"), width


@pytest.mark.slow
@pytest.mark.skipif(chromium() is None, reason="no chromium on this machine")
def test_two_first_tables_stand_in_rows_on_a_phone_and_leave_room_for_the_figure_on_paper(tmp_path: Path) -> None:
    served = stored_run(tmp_path, "serving", *TRIALS, *STOPPED)
    collective = make_run(tmp_path, repeats=1, sizes={1 << 20: 4, 8 << 20: 4}, counters=False)
    with ChromiumPage(chromium() or "", tmp_path / "profile") as page:
        page.open(write_report([served, collective], tmp_path / "both"))
        page.send("Emulation.setDeviceMetricsOverride", width=420, height=900, deviceScaleFactor=1, mobile=True)
        rows = """[...document.querySelectorAll('table.overview.dense tbody tr')].flatMap(row => {
          const cells = [...row.querySelectorAll('td[data-label]')];
          const beside = Object.values(Object.groupBy(cells, cell => cell.offsetTop));
          return beside.map(some => new Set(some.map(cell => cell.querySelector('strong').offsetTop)).size) })"""
        found = page.evaluate(rows)
        assert len(found) >= 6 and set(found) == {1}, "numbers beside each other are at one height"
        page.send("Emulation.setEmulatedMedia", media="print")
        page.send("Emulation.setDeviceMetricsOverride", width=703, height=1032, deviceScaleFactor=1, mobile=False)
        bottom = page.evaluate("document.querySelector('#first img').getBoundingClientRect().bottom + scrollY")
        assert bottom < 1032 * 2 / 3, "two tables of two systems each, and the figure"
        tables = "[...document.querySelectorAll('#first table')]"
        assert page.evaluate(f"{tables}.every(t => t.getBoundingClientRect().right <= 703)")
        assert "</span>&nbsp;balance" in page.evaluate("document.querySelector('#first').innerHTML"), (
            "no mark stands alone"
        )
