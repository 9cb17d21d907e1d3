"""The report of a whole run folder: complete, self-contained, harmless whatever the folder says."""

import base64
import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from html.parser import HTMLParser
from itertools import product
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pandas as pd
import pytest
from synthetic_run import make_run

from reports import embed
from reports.errors import ReportError
from reports.flat import flat
from reports.headline import headline
from reports.load import load_folder, load_folders
from reports.measures import trial_frame
from reports.page import Picture, html
from reports.report import _by_turns, _says, content, representatives, write_report

HOSTILE = '</script><script>alert(1)</script><img src=x onerror="alert(2)">'
VOID = {"meta", "img", "br", "source", "input"}


class Page(HTMLParser):
    """What a browser would make of it: tags, attributes and open elements."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "script" not in self.open and "style" not in self.open:
            self.text += data

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """With every file of its figures, whatever conftest.py says."""
    folder = make_run(tmp_path_factory.mktemp("runs"), repeats=3, sizes={1 << 20: 6})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("reports.report.save", embed.save)
        return folder, write_report(folder).read_text(encoding="utf-8")


def small(tmp_path: Path) -> Path:
    return make_run(tmp_path, repeats=1, sizes={1 << 20: 4}, counters=False)


def without_figures(folder: Path) -> str:
    """The page of a run, made as that of one under way: drawing takes longer than all else."""
    runs = load_folders([folder])
    frame = trial_frame(runs)
    return html(content(runs, frame, headline(frame)))


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_the_page_fetches_nothing(written: tuple[Path, str]) -> None:
    page = Page(written[1])
    assert not page.open
    assert all(str(img["src"]).startswith("data:image/") for img in page.of("img"))
    assert not page.of("link")
    ids = {f"#{attrs['id']}" for _, attrs in page.tags if attrs.get("id")}
    assert {str(a["href"]) for a in page.of("a")} <= ids
    assert not [a for _, a in page.tags if any(name.startswith("on") for name in a)]
    (policy,) = [m["content"] for m in page.of("meta") if m.get("http-equiv")]
    assert "default-src 'none'" in str(policy)
    assert "unsafe" not in str(policy)
    assert len(written[1]) < 5_000_000


def test_the_summary_comes_first_and_says_what_happened(written: tuple[Path, str]) -> None:
    text = " ".join(Page(written[1]).text.split())
    body = text[text.index("T/T0") :]
    places = [body.index(heading) for heading in ("Summary", "Figures", "All numbers", "Trials")]
    assert places == sorted(places)
    for said in (
        "Every trial ended as the experiment expects.",
        "failstop (fail-stop, as NCCL is) stopped: each of its 3 faulted trials ended with an error",
        "the model says 1.5",
        "No wrong element in",
        "harness sweep experiments/allreduce.toml",
        "0123456789abcdef",
    ):
        assert said in text


def test_every_fault_trial_has_a_section_and_every_cell_a_timeline(written: tuple[Path, str]) -> None:
    folder, text = written
    page = Page(text)
    sections = [a for a in page.of("details") if a.get("id")]
    assert len(sections) == 9
    timelines = [a for a in page.of("img") if str(a["alt"]).startswith("Timeline")]
    assert len(timelines) == 3
    assert "3 of 9 trials have a timeline of their NICs" in page.text
    assert "stopped (expected)" in page.text and "failed (expected)" not in page.text
    names = {p.name for p in (folder / "figures").iterdir()}
    wanted = {f"{name}.{kind}" for name in ("overview", "slowdown", "timeline-03") for kind in ("svg", "pdf", "png")}
    assert wanted <= names


def test_one_timeline_is_told_in_the_singular(tmp_path: Path) -> None:
    runs = load_folders([small(tmp_path)])
    frame = trial_frame(runs)
    told = content(runs, frame, headline(frame))
    one = replace(told, entries=[replace(told.entries[0], timeline=Picture("Timeline", "data:,", ""))])
    assert "1 of 1 trial has a timeline of its NICs" in html(one)


def test_the_first_screen_is_one_figure_and_one_table(written: tuple[Path, str]) -> None:
    first = written[1][written[1].index('<section id="first"') : written[1].index('<section id="summary">')]
    page = Page(first.replace("</section>", ""))
    assert (len(page.of("img")), len(page.of("table"))) == (1, 1)
    assert [row for row in ("failstop", "hot_repair", "balance") if row not in page.text] == []
    assert (
        "stopped" in page.text
        and "model 1.5" in page.text
        and "T/T0 is the time of an iteration after the fault" in page.text
    )
    (alt,) = [img["alt"] for img in page.of("img")]
    assert "balance, nic_down: 0." in str(alt) and "ms lost" in str(alt)


def test_a_fault_without_a_name_goes_by_its_number() -> None:
    told = dict(flat({"fault": [{"name": None, "kind": "flap"}, {"name": "late", "kind": "nic_down"}]}))
    assert told == {"fault[0].kind": "flap", "fault[late].name": "late", "fault[late].kind": "nic_down"}


def test_pictures_say_their_result_to_who_cannot_see_them(written: tuple[Path, str]) -> None:
    alts = {str(img["alt"]) for img in Page(written[1]).of("img")}
    assert any(
        re.match(r"Slowdown after the fault: hot_repair at 1MiB: 2\.\d+; balance at 1MiB: 1\.5\d", a) for a in alts
    )
    both = r"Bus bandwidth: healthy bus bandwidth: failstop at .* GB/s\. bus bandwidth after the fault: hot_repair at"
    assert any(re.match(both, alt) for alt in alts)
    assert any("additional time of the hit iteration" in alt and "stall of the hit iteration" in alt for alt in alts)
    assert any("bus bandwidth after the fault: " in alt and "none for failstop (stopped)" in alt for alt in alts)
    assert any(alt.startswith("Timeline of balance-") and "nic_down on host1 eth1" in alt for alt in alts)
    ends = {alt.rpartition("; ")[2] for alt in alts if alt.startswith("Timeline of failstop-")}
    assert ends == {"stopped (expected)"}, "as the section says it"


def test_a_narrow_window_prints_the_wide_figures(written: tuple[Path, str]) -> None:
    assert set(re.findall(r'<source media="([^"]*)"', written[1])) == {"screen and (max-width: 600px)"}


def test_the_small_print_says_of_how_few_iterations_a_p99_is(written: tuple[Path, str]) -> None:
    assert re.search(r"A p99 of \d+( to \d+)? iterations is nearly their maximum\.", written[1])


def test_svgs_and_their_files_have_the_alternative_text_as_title(written: tuple[Path, str]) -> None:
    def title(svg: bytes) -> str:
        first = ElementTree.fromstring(svg)[0]  # of several titles the first one counts
        assert first.tag == "{http://www.w3.org/2000/svg}title"
        return str(first.text)

    folder, text = written
    inside = {}
    for img in Page(text).of("img"):
        kind, _, data = str(img["src"]).partition(";base64,")
        if kind == "data:image/svg+xml":
            inside[str(img["alt"])] = title(base64.b64decode(data))
    assert len(inside) > 5 and all(alt == said for alt, said in inside.items())
    files = {path.name: title(path.read_bytes()) for path in folder.glob("figures/*.svg")}
    assert set(files.values()) == {str(img["alt"]) for img in Page(text).of("img")}
    assert files["overview.svg"] == files["overview-narrow.svg"]


def test_an_alternative_text_tells_the_worst_size_too(tmp_path: Path) -> None:
    runs = load_folders([make_run(tmp_path, repeats=1, sizes={1 << 20: 12, 8 << 20: 6}, counters=False)])
    frame = trial_frame(runs)
    small = frame["size_bytes"] == 1 << 20
    slower = frame.assign(slowdown=frame["slowdown"] + 10 * small)
    said = _says(slower, ["slowdown"])
    assert re.search(r"balance at 8MiB: 1\.\d+ \(highest: 11\.\d at 1MiB\)", said), said
    assert said.endswith("none for failstop (stopped)")
    assert "highest" not in _says(frame.assign(slowdown=frame["slowdown"] - small), ["slowdown"])
    assert "(lowest: " in _says(frame.assign(before_gbs=1.0 - 0.5 * small), ["before_gbs"])


def test_nothing_is_shown_as_json(written: tuple[Path, str]) -> None:
    assert "{" not in Page(written[1]).text
    assert "sweep.repeats" in Page(written[1]).text


def test_the_projects_targets_are_in_its_own_experiments_only(tmp_path: Path) -> None:
    folder = small(tmp_path)
    assert "Stall of the hit iteration" not in without_figures(folder)
    run = json.loads((folder / "run.json").read_text())
    edit(folder / "run.json", experiment=run["experiment"] | {"project_targets": True})
    assert "Stall of the hit iteration" in without_figures(folder)


@pytest.mark.usefixtures("undrawn")
def test_a_slow_iteration_has_a_bandwidth(tmp_path: Path) -> None:
    folder = make_run(tmp_path, sizes={1 << 10: 4}, systems={"balance": 2}, repeats=1, counters=False)
    (path,) = folder.glob("trials/*/trial.json")
    values = json.loads(path.read_text())
    values["iterations"][-1]["busbw_gbs"] = 3.17e-05
    path.write_text(json.dumps(values))
    (listed,) = re.findall(r'details class="inner".*?</details>', write_report(folder).read_text(), re.DOTALL)
    assert ">0.000032</td>" in listed, "with four decimals it was 0.0000"


def test_axes_are_columns_of_the_table(tmp_path: Path) -> None:
    folder = small(tmp_path)
    for path in list(folder.glob("trials/*/trial.json")):
        trial = json.loads(path.read_text())
        edit(path, axes={"window": "small"})
        other = path.parent.with_name(f"{path.parent.name}-large")
        shutil.copytree(path.parent, other)
        edit(other / "trial.json", trial_id=other.name, axes={"window": "large"}, dtype=trial["dtype"])
    text = without_figures(folder)
    head = text[text.index('<table class="sortable numbers">') :].partition("</thead>")[0]
    assert "<th>window</th>" in head
    assert "<th>fault</th>" not in head


@pytest.mark.usefixtures("undrawn")
def test_several_runs_stand_in_one_report_told_apart(tmp_path: Path) -> None:
    first, second = small(tmp_path / "a"), small(tmp_path / "b")
    run = json.loads((second / "run.json").read_text())
    edit(second / "run.json", provenance=run["provenance"] | {"cpu": "Another processor"})
    before = {path: path.stat().st_mtime_ns for path in (*first.iterdir(), *second.iterdir())}
    html_text = write_report([first, second], tmp_path / "both").read_text(encoding="utf-8")
    page = Page(html_text)
    text = " ".join(page.text.split())
    label = f"{second.name} (2)"
    assert "The runs differ in machine: cpu: A processor (run 1), Another processor (run 2)." in text
    assert f"run 1: {first.name}: started" in text and f"run 2: {label}: started" in text
    assert html_text.partition("<main>")[0].count("One of three NICs goes down") == 1, "both are told to be the same"
    marks = {}
    for row in html_text.partition("<tbody>")[2].partition("</tbody>")[0].split("<tr>")[1:]:
        color, glyph, name = re.findall(r'class="mark (s[0-9])" aria-hidden="true">(.)</span>&nbsp;([^<]+)<', row)[0]
        marks[name] = (color, glyph)
    for system in ("failstop", "hot_repair", "balance"):
        one, other = marks[f"{system} (run 1)"], marks[f"{system} (run 2)"]
        assert one[0] == other[0] and one[1] != other[1], "one colour a system, one mark a run"
    assert len({color for color, _ in marks.values()}) == 3
    assert len({a["id"] for a in page.of("details") if a.get("id")}) == 6
    assert before == {path: path.stat().st_mtime_ns for path in (*first.iterdir(), *second.iterdir())}
    rows = pd.read_csv(tmp_path / "both" / "rows.csv")
    assert set(rows["run"]) == {first.name, label}
    summary = json.loads((tmp_path / "both" / "summary.json").read_text())
    assert [(d["about"], d["what"]) for d in summary["differences"]] == [("machine", "cpu")]


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    ("went_on", "told", "commit", "dirty"),
    [
        ({"commit": "a", "dirty": False}, "", "a", False),
        (
            {"commit": "a", "dirty": True, "source": "f2"},
            "commit a, later commit a, changed since (files f2)",
            "a",
            True,
        ),
        ({"commit": "b", "dirty": False, "source": "f2"}, "commit a, later commit b (files f2)", "a, later b", False),
    ],
)
def test_a_source_that_changed_in_mid_sweep_is_told(
    tmp_path: Path, went_on: dict[str, object], told: str, commit: str, dirty: bool
) -> None:
    folder = small(tmp_path)
    run = json.loads((folder / "run.json").read_text())
    begun = run["provenance"] | {"commit": "a", "dirty": False}
    edit(folder / "run.json", provenance=begun | {"continued": [{"at": "later", **went_on}]})
    page = Page(write_report(folder).read_text(encoding="utf-8"))
    sentence = f"whose source changed while the sweep was interrupted: {told}."
    assert (sentence in " ".join(page.text.split())) is bool(told)
    rows = pd.read_parquet(folder / "rows.parquet")
    assert (set(rows["commit"]), set(rows["dirty"])) == ({commit}, {dirty})


@pytest.mark.usefixtures("undrawn")
def test_each_run_of_several_is_held_against_its_own_bounds(tmp_path: Path) -> None:
    first, second = small(tmp_path / "a"), small(tmp_path / "b")
    for folder, limit in ((first, 1.0), (second, 9.0)):
        experiment = json.loads((folder / "run.json").read_text())["experiment"]
        bound = {"metric": "slowdown", "system": "balance", "max": limit}
        edit(folder / "run.json", experiment=experiment | {"bound": [bound]})
    write_report([first, second], tmp_path / "both")
    targets = json.loads((tmp_path / "both" / "summary.json").read_text())["targets"]
    bounds = [t["met"] for t in targets if "slowdown" in t["what"]]
    assert bounds == [False, True]


def test_several_runs_need_a_place_of_their_own(tmp_path: Path) -> None:
    first, second = small(tmp_path / "a"), small(tmp_path / "b")
    with pytest.raises(ReportError, match="add -o DIR"):
        write_report([first, second])
    with pytest.raises(ReportError, match="would be overwritten"):
        write_report([first, second], first)
    (tmp_path / "file").touch()
    with pytest.raises(ReportError, match="not a folder"):
        write_report(first, tmp_path / "file")
    edit(second / "run.json", schema=99)
    with pytest.raises(ReportError, match="newer"):
        write_report([first, second], tmp_path / "both")
    assert not (tmp_path / "both").exists()


def test_attempts_that_were_run_again_are_on_the_page_with_their_reasons(tmp_path: Path) -> None:
    folder = small(tmp_path)
    first = folder / "trials/balance-1MiB-nic_down-r0"
    second = first.with_name(f"{first.name}-a2")
    shutil.copytree(first, second)
    edit(first / "trial.json", status="inconclusive", expected=False, reason="the fault missed <b>")
    edit(second / "trial.json", trial_id=second.name, attempt=2)
    text = " ".join(Page(without_figures(folder)).text.split())
    assert "1 earlier attempt was inconclusive and run again" in text
    assert text.count("the fault missed <b>") == 3
    assert "earlier attempts" in text


@pytest.mark.parametrize(
    ("network", "told"),
    [
        ({"finding": "proven", "used": ["eth0", "eth1"], "reason": ""}, "proven: eth0, eth1"),
        ({"finding": "unknown", "used": [], "reason": "no log"}, "unknown: not known (no log)"),
        ("<b>", "<b>"),
        ({}, "not built"),
    ],
)
def test_the_network_that_was_used_is_on_the_page(tmp_path: Path, network: object, told: str) -> None:
    folder = small(tmp_path)
    for path in folder.glob("trials/*/trial.json"):
        trial = json.loads(path.read_text())
        edit(path, evidence=trial["evidence"] | {"network": network})
    text = " ".join(Page(without_figures(folder)).text.split())
    assert (told in text) == (network != {})


def test_rows_stand_beside_the_page(written: tuple[Path, str]) -> None:
    folder, _ = written
    assert {"rows.parquet", "rows.csv", "report.html"} <= {p.name for p in folder.iterdir()}
    assert not list(folder.glob(".*.part"))


def test_a_report_can_be_written_again_and_is_the_same(tmp_path: Path) -> None:
    folder = small(tmp_path)
    assert write_report(folder).read_text(encoding="utf-8") == write_report(folder).read_text(encoding="utf-8")


def test_the_representative_is_the_trial_with_the_median_hit(written: tuple[Path, str]) -> None:
    trials = load_folder(written[0]).final_trials
    for chosen in representatives(trials):
        same = [t for t in trials if (t.system, t.size_bytes) == (chosen.system, chosen.size_bytes)]
        hits = sorted(sum(i.duration_ns for i in t.iterations if i.phase == "hit") for t in same)
        assert sum(i.duration_ns for i in chosen.iterations if i.phase == "hit") == hits[1]


def crossed(sizes: tuple[int, ...], scenarios: tuple[str, ...], points: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """What differs between the trials of a sweep of two systems, in the order of their names."""
    for scenario, point, size, system in product(scenarios, points, sizes, ("balance", "hot_repair")):
        name = f"{system}-{size}-{scenario}-{point}-r0"
        yield {
            "trial_id": name, "system": system, "size_bytes": size, "scenario": scenario, "axes": {"collective": point}
        }  # fmt: skip


def test_every_fault_and_system_of_the_largest_size_comes_first(written: tuple[Path, str]) -> None:
    trial = next(t for t in load_folder(written[0]).final_trials if t.system == "balance")
    cells = list(crossed((1 << 18, 1 << 24), ("flap", "nic_down", "rate_limit"), ("all_reduce", "reduce_scatter")))
    chosen = representatives([trial.model_copy(update=cell) for cell in cells])
    told = [(t.size_bytes, t.axes["collective"], t.scenario, t.system) for t in chosen]
    assert len(told) == 24
    for place, (size, point) in enumerate(product((1 << 24, 1 << 18), ("all_reduce", "reduce_scatter"))):
        of_them = product((size,), (point,), ("flap", "nic_down", "rate_limit"), ("balance", "hot_repair"))
        assert told[6 * place : 6 * place + 6] == list(of_them)


def test_runs_share_the_timelines(written: tuple[Path, str]) -> None:
    run = load_folder(written[0])
    trial = next(t for t in run.final_trials if t.system == "balance")
    cells = list(crossed((1 << 20,), ("flap", "nic_down"), ("all_reduce",)))
    many = replace(run, label="many", trials=tuple(trial.model_copy(update=cell) for cell in cells))
    simulated = {"evidence": trial.evidence.model_copy(update={"simulated": {"seed": 1}})}
    none = replace(run, label="none", trials=tuple(trial.model_copy(update=cell | simulated) for cell in cells))
    few = replace(run, label="few", trials=many.trials[:1])
    assert [one.name for one, _ in _by_turns([many, none, few])] == ["many", "few", "many", "many", "many"]


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    folder = small(tmp_path)
    run = json.loads((folder / "run.json").read_text())
    run["experiment"] |= {"name": HOSTILE, "description": HOSTILE, HOSTILE: [HOSTILE]}
    run["provenance"] |= {"command": HOSTILE, HOSTILE: {HOSTILE: HOSTILE}}
    edit(folder / "run.json", **run)
    for path in list(folder.glob("trials/*/trial.json")):
        trial = json.loads(path.read_text())
        fault = trial["fault"] | {"host": HOSTILE, "nic": "$x_{", "kind": HOSTILE}
        system = f'<img src=x onerror="alert(3)">{trial["mode"]}'  # a folder's name holds no slash
        trial_id = f"{system}-r0"
        told = {"reason": HOSTILE, "fault": fault, "collective": HOSTILE, "dtype": "\x1b[31m"}
        edit(path, system=system, trial_id=trial_id, **told)
        path.parent.rename(path.parent.with_name(trial_id))
    page = Page(write_report(folder).read_text(encoding="utf-8"))
    assert len(page.of("script")) == 1
    assert not [a for _, a in page.tags if "onerror" in a]
    assert all(str(img["src"]).startswith("data:image/") for img in page.of("img"))
    assert HOSTILE in page.text


def unfinished(folder: Path) -> None:
    edit(folder / "run.json", finished=None)


def no_experiment(folder: Path) -> None:
    edit(folder / "run.json", experiment={}, provenance={})


def strange_cluster(folder: Path) -> None:
    edit(folder / "run.json", experiment={"name": 3, "cluster": {"hosts": "x", "nics": -1, "rate": "fast"}})


def truncated(folder: Path) -> None:
    path = next(folder.glob("trials/*/trial.json"))
    path.write_bytes(path.read_bytes()[:-50])


def only_failures(folder: Path) -> None:
    for path in folder.glob("trials/*/trial.json"):
        edit(path, status="failed", expected=False, iterations=[], core={}, error=None)


def all_inconclusive(folder: Path) -> None:
    for path in folder.glob("trials/*/trial.json"):
        edit(path, status="inconclusive", expected=False, fault=None, iterations=[])


def unchecked(folder: Path) -> None:
    for path in folder.glob("trials/*/trial.json"):
        items = json.loads(path.read_text())["iterations"]
        edit(path, iterations=[i | {"wrong": None} for i in items])


ODD: dict[str, tuple[Callable[[Path], None], str]] = {
    "unfinished": (unfinished, "The sweep has not finished"),
    "no experiment": (no_experiment, "not known"),
    "strange cluster": (strange_cluster, "3 trials of all_reduce over hosts"),
    "truncated": (truncated, "Left out of this report"),
    "only failures": (only_failures, "3 trials did not end as expected"),
    "all inconclusive": (all_inconclusive, "3 trials stayed inconclusive"),
    "unchecked": (unchecked, "No element was checked."),
}


@pytest.mark.parametrize("case", ODD)
def test_odd_runs_are_reported_as_far_as_they_go(tmp_path: Path, case: str) -> None:
    folder = small(tmp_path)
    change, said = ODD[case]
    change(folder)
    assert said in " ".join(Page(write_report(folder).read_text(encoding="utf-8")).text.split())


def test_a_trial_has_one_number_of_iterations(written: tuple[Path, str]) -> None:
    """The table of trials counted 14 where the trial's own section counted 15, with its warm-up."""
    folder, text = written
    trials = {t.trial_id: t for t in load_folder(folder).trials}
    sections = re.findall(
        r'<span class="id">([^<]+)</span>.*?<summary>(\d+) iterations, after (\d+) warm-up', text, re.S
    )
    assert sections
    for name, timed, warmups in sections:
        phases = [i.phase for i in trials[name].iterations]
        assert (int(timed), int(warmups)) == (len(phases) - phases.count("warmup"), phases.count("warmup"))
        (row,) = re.findall(rf"<tr[^>]*><td>(?:<a[^>]*>)?{re.escape(name)}<.*?</tr>", text)
        assert f'<td class="n">{timed}</td>' in row
    checked = sum(i.wrong is not None for t in trials.values() if t.system == "balance" for i in t.iterations)
    assert f"in {checked} checked iterations, warm-ups included" in text
    numbers = text[text.index('<table class="sortable numbers') :].partition("</table>")[0]
    assert "warm-ups included" not in numbers and '<span class="ci">' in numbers, "the words below it say so once"
    assert re.search(r'<span class="ci">\d+ checked</span>', numbers)


def test_wrong_elements_are_told_loudly(tmp_path: Path) -> None:
    folder = small(tmp_path)
    path = folder / "trials/balance-1MiB-nic_down-r0/trial.json"
    items = json.loads(path.read_text())["iterations"]
    edit(path, status="wrong", expected=False, iterations=[i | {"wrong": 7} for i in items])
    text = write_report(folder).read_text(encoding="utf-8")
    assert re.search(r'<li class="bad">\d+ WRONG elements in', text)
    first = text.partition('<table class="overview">')[2].partition("</table>")[0]
    assert re.search(r'<td class="n bad" data-label="wrong elements"><strong>[1-9]', first)
    assert first.count('<span class="ci bad">1 trial not as expected</span>') == 1
    assert re.findall(r'<details class="trial bad" id="trial-[0-9]+"( open)?>', text) == [" open"]
    assert 'tr class="bad"' not in first, "the numbers of other trials are none of it"


def test_a_run_without_faults_is_reported(tmp_path: Path) -> None:
    folder = make_run(tmp_path, repeats=2, sizes={1 << 20: 4}, systems={"balance": 2}, fault=False, counters=False)
    page = Page(write_report(folder).read_text(encoding="utf-8"))
    assert "without a fault" in page.text
    assert len(page.of("img")) == 2
    first = folder.joinpath("report.html").read_text(encoding="utf-8").partition('<section id="first"')[2]
    first = first.partition("</section>")[0]
    assert re.findall(r'data-label="([^"]*)"', first) == ["healthy, GB/s", "wrong elements"]
    assert "Healthy speed" in first and "2 trials of each system" in first
    for of_a_fault in ("T/T0", "time lost", "Time lost", "p99", "fault"):
        assert of_a_fault not in first, of_a_fault


def test_nothing_to_report_is_one_line(tmp_path: Path) -> None:
    folder = small(tmp_path)
    shutil.rmtree(folder / "trials")
    with pytest.raises(ReportError) as caught:
        write_report(folder)
    assert "\n" not in str(caught.value)
    assert not (folder / "report.html").exists()


def test_the_alternative_text_of_healthy_trials_speaks_of_no_fault(tmp_path: Path) -> None:
    frame = trial_frame(load_folders([make_run(tmp_path, repeats=1, fault=False, counters=False)]))
    said = _says(frame, ["before_gbs", "after_gbs"])
    assert "failstop at 64MiB: " in said and "none for" not in said


def test_what_stands_in_the_way_of_a_report_is_named_before_any_work(tmp_path: Path) -> None:
    folder = make_run(tmp_path, repeats=1, sizes={1 << 20: 4})
    (folder / "report.html").mkdir()
    with pytest.raises(ReportError, match=r"report\.html: is a folder where the page would be"):
        write_report(folder)
    (folder / "report.html").rmdir()
    (folder / "figures").write_text("")
    with pytest.raises(ReportError, match="figures: is no folder, where the figures would be"):
        write_report(folder)
    assert not (folder / "rows.parquet").exists()
