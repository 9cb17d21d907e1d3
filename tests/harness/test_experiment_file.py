"""Reading experiments: each mistake is one line of file, key, value, remedy; the shipped ones are right."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from harness.errors import ExperimentError, InvalidExperimentError, MistakeError
from harness.experiment.file import apply, load, read, without_none
from harness.experiment.mistakes import read_toml
from harness.experiment.model import Experiment, identity
from r2ccl_core.text_file import WRITTEN_BYTES
from r2ccl_core.units import parse_size

ROOT = Path(__file__).parents[2]
ALLREDUCE = ROOT / "experiments" / "allreduce.toml"
MISTAKES = json.loads((Path(__file__).parent / "experiment_cases" / "mistakes.json").read_text())


@pytest.mark.parametrize("case", MISTAKES, ids=lambda case: case["set"][0])
def test_every_mistake_is_one_line(case: dict[str, Any]) -> None:
    document = read_toml(ALLREDUCE, "")
    for change in case["set"]:
        apply(document, change)
    with pytest.raises(InvalidExperimentError) as refused:
        read(document, str(ALLREDUCE))
    assert str(refused.value).splitlines() == [f"{ALLREDUCE}: {line}" for line in case["lines"]]


def test_a_setting_without_a_number_is_for_every_entry() -> None:
    document: dict[str, Any] = {"system": [{"name": "a"}, {"name": "b", "env": {"X": "1"}}], "none": [], "fault": [{}]}
    apply(document, 'system.env.Y="2"')
    assert document["system"] == [{"name": "a", "env": {"Y": "2"}}, {"name": "b", "env": {"X": "1", "Y": "2"}}]
    for setting, words in (
        ("fault[one].x=1", "no entry is called 'one', as none has a name; give a number, such as 0"),
        ("none.x=1", "there is no entry that could have 'x'"),
        ("system[2].x=1", "there is no entry 2; entries count from 0 to 1"),
    ):
        with pytest.raises(ExperimentError, match=words):
            apply(document, setting)


@pytest.mark.parametrize("path", sorted((ROOT / "experiments").glob("*.toml")), ids=lambda p: p.stem)
def test_shipped_experiments_are_right_and_named_as_their_file(path: Path) -> None:
    assert load(path).name == path.stem


@pytest.mark.parametrize("path", sorted((ROOT / "experiments").glob("*.toml")), ids=lambda p: p.stem)
def test_shipped_experiments_fit_hosts_whose_nics_have_other_names(path: Path) -> None:
    faults = [injection for fault in load(path).faults for injection in (fault, *fault.also)]
    named = [injection.nic for injection in faults if injection.nic not in (None, "random", "busiest")]
    assert not named, "an inventory of CloudLab knows NICs by their MAC addresses: give the rail"


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(MistakeError, match=r"^nowhere\.toml: there is no such file"):
        load(Path("nowhere.toml"))


def test_a_file_that_is_no_toml(tmp_path: Path) -> None:
    path = tmp_path / "broken.toml"
    path.write_text("[cluster\n")
    with pytest.raises(MistakeError, match=r"broken\.toml: is not valid TOML: .*line 1"):
        load(path)


def test_a_mark_at_the_beginning_of_a_file_is_no_part_of_it(tmp_path: Path) -> None:
    path = tmp_path / "marked.toml"
    faults = '\n[[fault]]\nname = "played"\ntrace = "played.csv"\n'
    path.write_text(ALLREDUCE.read_text() + faults, encoding="utf-8-sig")
    (tmp_path / "played.csv").write_text("at,kind,host,nic\n1,nic_down,host1,eth0\n", encoding="utf-8-sig")
    assert [event.at_s for event in load(path).faults[-1].events] == [1.0]


DEEP = ".".join(["x"] * 3000)


@pytest.mark.parametrize(
    ("more", "set_too", "line"),
    [
        (f"[deep]\nx = {'[' * 3000}{']' * 3000}", [], "{file}: is nested too deeply"),
        (
            f'[[axis]]\nname = "x"\nkey = "fault.parameters"\nvalues = [{{{DEEP} = 1}}]',
            [],
            "{file}: is nested too deeply",
        ),
        ("", [f"x={'[' * 3000}{']' * 3000}"], "--set: x: is nested too deeply"),
        ('[[fault]]\nname = "t"\ntrace = "deep"', [], "{file}: fault[1].trace: {deep}: line 1: is nested too deeply"),
        (
            '[[fault]]\nname = "t"\ntrace = "twice"',
            [],
            "{file}: fault[1].trace: {twice}: has the column 'at' twice; give",
        ),
        (f"[long]\nx = {'9' * 5000}", [], "{file}: has a number of thousands of digits"),
        (f"[long]\nx = 0x{'f' * 5000}", [], "{file}: has a number of thousands of digits"),
        ("", [f"sweep.repeats={'9' * 5000}"], "--set: sweep.repeats: has a number of thousands of digits"),
    ],
    ids=["list", "axis", "set", "trace", "column", "digits", "hexadecimal digits", "set digits"],
)
def test_what_no_reader_takes_is_one_line(tmp_path: Path, more: str, set_too: list[str], line: str) -> None:
    places = {name: tmp_path / name for name in ("file", "deep", "twice")}
    places["file"].write_text(f"{ALLREDUCE.read_text()}\n{more}\n")
    places["deep"].write_text('{"a":' * 100_000)
    places["twice"].write_text("at,kind,at\n1,nic_down,2\n")
    with pytest.raises(MistakeError) as refused:
        load(places["file"], set_too)
    assert str(refused.value).startswith(line.format(**places))
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        ("played.csv", "at,kind,host,nic\n1,nic_down,host1,eth0\n\nx,nic_down,host1,eth0", ["line 4: at: x: is not a"]),
        (
            "played.csv",
            "at,kind,host,nic,percent\n1,nic_dwn,host1,eth0\n2,loss,host9,eth0,900\n",
            [
                "line 2: kind: nic_dwn: unknown fault",
                "line 3: fault 'loss': percent = 900: must be at most",
            ],
        ),
        (
            "played.jsonl",
            '{"at": 1, "kind": "nic_down", "host": "host1", "nic": "eth0"}\n\n'
            '{"at": 2, "kind": "nic_down", "host": "host9", "nic": "eth0"}',
            ["line 3: host: host9: no such host"],
        ),
        (
            "played.csv",
            "at,kind,host,nic\n60,nic_down,host1,eth0\n\n61,nic_down,host1,eth1\n",
            ["line 4: at: 61 s: no trial lasts so long: sweep.limits.trial is 60 s; choose an earlier time"],
        ),
    ],
    ids=["key", "kind and parameter", "host", "after every trial"],
)
def test_a_mistake_in_a_trace_has_its_file_and_line(tmp_path: Path, name: str, text: str, lines: list[str]) -> None:
    path, trace = tmp_path / "x.toml", tmp_path / name
    path.write_text(f'{ALLREDUCE.read_text()}\n[[fault]]\nname = "played"\ntrace = "{name}"\n')
    trace.write_text(text)
    with pytest.raises(InvalidExperimentError) as refused:
        load(path)
    assert [
        line.startswith(f"{path}: fault[1].trace: {trace}: {begin}")
        for line, begin in zip(str(refused.value).splitlines(), lines, strict=True)
    ] == [True] * len(lines), str(refused.value)


def test_what_may_never_end_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for endless in (tmp_path / "pipe", Path("/dev/zero"), Path("/dev/null")):
        with pytest.raises(MistakeError, match=r": cannot be read: is not a regular file$"):
            load(endless)
    with (tmp_path / "huge").open("wb") as huge:
        huge.truncate(WRITTEN_BYTES + 1)
    with pytest.raises(MistakeError, match=r": cannot be read: is larger than 64 MiB$"):
        load(tmp_path / "huge")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(MistakeError, match=r": is a folder; name a file$"):
        load(tmp_path)


def test_other_sizes_need_no_word_of_those_of_the_file(tmp_path: Path) -> None:
    experiment = load(ALLREDUCE, ['workload.sizes=["2MiB", "8192KiB"]'])
    assert dict(experiment.workload.iterations_by_size) == {"8MiB": load(ALLREDUCE).iterations_of(8 << 20)}
    path = tmp_path / "bounds.toml"
    bounds = ['[[bound]]\nmetric = "share"\nmin = 0.5\n', '[[bound]]\nmetric = "share"\nsize = "8MiB"\nmin = 0.5\n']
    path.write_text("\n".join([ALLREDUCE.read_text(), *bounds]))
    kept = len(load(path).bounds)
    assert len(load(path, ['workload.sizes=["2MiB"]']).bounds) == kept - 1
    with pytest.raises(InvalidExperimentError, match=r"iterations_by_size\.x: x: 'x' is not a size"):
        load(ALLREDUCE, ['workload.sizes=["2MiB"]', "workload.iterations_by_size.x=3"])


@pytest.mark.parametrize(
    ("broken", "changes", "lines"),
    [
        ("", ["sweep.repeats=0"], ["--set: sweep.repeats: 0: must be at least 1"]),
        (
            "",
            ["sweep.seed=1", "system[balance].mode=9"],
            ["--set system[balance].mode=9: system[2].mode: 9: must be 0, 1, 2 or 3"],
        ),
        (  # an intermediate state may be wrong; what it becomes counts
            "",
            ["cluster.hosts=1", "cluster.hosts=1", "sweep.repeats=2"],
            ["--set: cluster.hosts: 1: a collective needs at least 2"],
        ),
        ("", ["cluster.hosts=1", "cluster.hosts=3"], []),
        (  # the file's own mistake stays the file's, beside that of a change
            "warmup = 1",
            ["sweep.repeats=0"],
            ["{file}: workload.warmup: -1: must be at least 0", "--set: sweep.repeats: 0: must be at least 1"],
        ),
        ("", ["fault[0].nic=eth0"], ["--set fault[0].nic=eth0: fault[0].rail: 1: give nic or rail, not both"]),
    ],
)
def test_a_mistake_that_a_change_makes_names_the_change(
    tmp_path: Path, broken: str, changes: list[str], lines: list[str]
) -> None:
    file = tmp_path / "mine.toml"
    text = ALLREDUCE.read_text()
    file.write_text(text.replace(broken, "warmup = -1", 1) if broken else text)
    try:
        load(file, changes)
        told: list[str] = []
    except InvalidExperimentError as error:
        told = str(error).split("\n")
    assert told == [line.format(file=file) for line in lines]


@pytest.mark.parametrize("setting", ["sweep.repeats", "=3", "fault[]=1", "fault[7].nic=eth0", "name.x=1"])
def test_settings_that_lead_nowhere(setting: str) -> None:
    with pytest.raises(ExperimentError, match=r"^--set: "):
        load(ALLREDUCE, [setting])


def test_settings_are_toml_or_text() -> None:
    document: dict[str, Any] = {"fault": [{"nic": "eth0"}]}
    for setting in ('a.b="x"', "a.c=3", "fault[0].nic=eth1", "d=500 Mbit/s"):
        apply(document, setting)
    assert document == {"a": {"b": "x", "c": 3}, "fault": [{"nic": "eth1"}], "d": "500 Mbit/s"}


def test_one_text_in_place_of_a_list_is_a_list_of_one() -> None:
    assert load(ALLREDUCE, ["workload.sizes=8MiB"]) == load(ALLREDUCE, ['workload.sizes=["8MiB"]'])
    with pytest.raises(InvalidExperimentError, match=r'write it like .*; several .* own: \["8MiB", "16MiB"\]$'):
        load(ALLREDUCE, ["workload.sizes=8MiB,16MiB"])
    for setting in ("system=balance", "workload.sizes=8"):  # tables, and what may be a count, stay mistakes
        with pytest.raises(InvalidExperimentError, match="must be a list"):
            load(ALLREDUCE, [setting])


@pytest.mark.parametrize("path", sorted((ROOT / "experiments").glob("*.toml")), ids=lambda p: p.stem)
def test_every_shipped_experiment_reads_back_from_what_a_run_stores(path: Path) -> None:
    experiment = load(path)
    assert read(without_none(experiment.resolved()), "run.json") == experiment


def test_a_resolved_experiment_reads_back_as_itself() -> None:
    experiment = load(ALLREDUCE, ["cluster.delay=150us", "sweep.limits.trial=1 min"])
    assert read(without_none(experiment.resolved()), "run.json") == experiment


def test_identity_changes_with_what_runs() -> None:
    same, other = load(ALLREDUCE, ["sweep.repeats=5"]), load(ALLREDUCE, ["sweep.repeats=4"])
    assert identity(load(ALLREDUCE)) == identity(same) != identity(other)
    assert identity(same, {"system": ["balance"]}) != identity(same)


def test_min_duration_adds_iterations_to_small_sizes_only() -> None:
    experiment = load(ALLREDUCE, ["workload.min_duration=1s", "workload.iterations_by_size={}"])
    assert isinstance(experiment, Experiment)
    assert experiment.iterations_of(parse_size("64MiB")) == 10
    assert experiment.iterations_of(parse_size("1MiB")) == 129
    assert experiment.iterations_of(4) == 20_000  # of 50 us each: the rate alone would ask for millions
