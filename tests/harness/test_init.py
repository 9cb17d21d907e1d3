"""`harness init`: what it writes is right, whatever was asked for, and runs."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from faults.registry import FAULTS
from harness.commands.init import Answers, init
from harness.experiment.file import load
from harness.experiment.model import Experiment
from harness.sweep.dry_run import lines
from harness.sweep.plan import plan
from harness.sweep.simulated import simulated_record
from r2ccl_core.errors import UsageError
from r2ccl_core.model.collective import COLLECTIVES

HOSTS = """
schema = 1
rails = ["rail0"]
host = [
    {name = "a", address = "192.0.2.1", nics = [{rail = 0, name = "eth1", ipv4 = "198.51.100.1/24"}]},
    {name = "b", address = "192.0.2.2", nics = [{rail = 0, name = "eth1", ipv4 = "198.51.100.2/24"}]},
]
"""


def test_what_it_writes_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "My first one.toml"
    init(file, Answers(systems=("balance", "auto"), repeats=1), ask=True, force=False)
    told = capsys.readouterr().out
    assert "2 trials" in told and re.search(r"roughly \d\d s on a quiet machine", told)
    experiment = load(file, ["workload.backend=simulate"])
    assert experiment.name == "my_first_one"
    records = [simulated_record(trial, 1) for trial in plan(experiment)]
    assert [(record.status, record.expected) for record in records] == [("ok", True)] * 2


@pytest.mark.parametrize("nics", [1, 2])
def test_every_fault_and_every_collective_is_right(tmp_path: Path, nics: int) -> None:
    answers = Answers(nics=nics, faults=tuple(FAULTS), systems=("balance",))
    init(tmp_path / "faults.toml", answers, ask=False, force=False)
    assert len(load(tmp_path / "faults.toml").faults) == len(FAULTS)
    for collective in COLLECTIVES:
        init(tmp_path / "one.toml", Answers(collectives=(collective,), nics=nics), ask=False, force=True)


@pytest.mark.parametrize(
    ("nics", "systems", "collectives", "rail"),
    [
        (2, ("balance",), ("all_reduce",), 1),
        (2, ("gloo",), ("all_reduce",), 0),
        (2, ("balance", "gloo"), ("all_reduce",), 0),
        (3, ("gloo",), ("all_reduce",), 1),
        (3, ("gloo",), ("all_reduce", "sendrecv"), 0),
        (1, ("gloo",), ("all_reduce",), 0),
    ],
)
def test_the_fault_hits_a_nic_that_every_system_uses(
    tmp_path: Path, nics: int, systems: tuple[str, ...], collectives: tuple[str, ...], rail: int
) -> None:
    answers = Answers(hosts=2, nics=nics, systems=systems, collectives=collectives, faults=("blackhole",))
    init(tmp_path / "x.toml", answers, ask=False, force=False)
    made = load(tmp_path / "x.toml")
    assert made.faults[0].rail == rail
    assert not [line for line in lines(made, plan(made)) if "none of its collectives" in line]


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_of_virtual_machines_gets_them(tmp_path: Path, kind: str) -> None:
    init(tmp_path / "x.toml", Answers(faults=(kind,)), ask=False, force=False)
    made = load(tmp_path / "x.toml")
    assert made.cluster.kind == ("vms" if FAULTS[kind].needs_machine else "local")
    assert not [line for line in lines(made, plan(made)) if "needs a virtual machine" in line or "refuse" in line]


def test_several_collectives_are_an_axis(tmp_path: Path) -> None:
    """The last one alone was written, without a word."""
    file, collectives = tmp_path / "two.toml", ["all_reduce", "all_gather"]
    options = [part for name in collectives for part in ("--collective", name)]
    code = "from harness.commands.start import main; main()"
    subprocess.run([sys.executable, "-c", code, "init", str(file), *options], check=True, capture_output=True)
    trials = plan(load(file))
    assert {trial.value("collective") for trial in trials} == set(collectives)
    assert len(trials) == len(collectives) * len(plan(load_of(tmp_path / "one.toml", "all_reduce")))


def load_of(file: Path, *collectives: str) -> Experiment:
    init(file, Answers(collectives=collectives), ask=False, force=False)
    return load(file)


def test_hosts_that_exist_are_taken_from_their_inventory(tmp_path: Path) -> None:
    (tmp_path / "hosts.toml").write_text(HOSTS)
    init(tmp_path / "own.toml", Answers(inventory=tmp_path / "hosts.toml"), ask=False, force=False)
    assert load(tmp_path / "own.toml").cluster.host_names() == ["a", "b"]


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        (Answers(systems=("balnce",)), "--system balnce: is unknown; did you mean 'balance'?"),
        (Answers(faults=("fire",)), "--fault fire: is unknown; `harness faults` lists them"),
        (Answers(faults=("loss", "loss")), "--fault loss: is given more than once; name each once"),
        (Answers(hosts=1), "--hosts 1: a collective needs at least 2"),
        (Answers(hosts=999, rate="1"), "--hosts 999: must be at most 250\n--rate 1: has no unit for a rate; write it"),
        (Answers(rate="40 Gbit/s"), "--rate '40 Gbit/s': is out of range; choose between '1 Mbit/s' and '30 Gbit/s'"),
        (Answers(nics=0), "--nics 0: must be at least 1"),
        (Answers(sizes=("8MiB", "banana")), "--size banana: is not a size; write it like '64MiB'"),
        (Answers(collectives=("all_reduce", "foo")), "--collective foo: is unknown; known: all_reduce, all_gather, "),
        (Answers(collectives=("reduce", "reduce")), "--collective reduce: is given more than once; name each once"),
        (Answers(collectives=()), "--collective '': must be 'all_reduce', 'all_gather'"),
        (Answers(repeats=0), "--repeats 0: must be at least 1"),
        (Answers(systems=("nccl",)), "--nccl-tests: name the folder"),
        (Answers(hosts=40, faults=("cable_pull",)), "--hosts 40: must be at most 32"),
        (Answers(inventory=Path("hosts.toml"), faults=("host_reset",)), "--fault host_reset: needs virtual machines"),
    ],
)
def test_a_mistake_writes_nothing(tmp_path: Path, answers: Answers, words: str) -> None:
    with pytest.raises(UsageError, match=f"^{re.escape(words)}"):
        init(tmp_path / "x.toml", answers, ask=False, force=False)
    assert not list(tmp_path.iterdir())


def test_a_mistake_in_an_inventory_names_it(tmp_path: Path) -> None:
    (hosts := tmp_path / "hosts.toml").write_text("\n".join(HOSTS.splitlines()[:5]) + "\n]\n")
    told = f"--inventory {hosts}: cluster.hosts: 1: a collective needs at least 2"
    with pytest.raises(UsageError, match=f"^{re.escape(told)}$"):
        init(tmp_path / "x.toml", Answers(inventory=hosts), ask=False, force=False)


def test_what_is_there_is_not_replaced(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text("mine")
    with pytest.raises(UsageError, match="exists already"):
        init(file, Answers(), ask=False, force=False)
    assert file.read_text() == "mine"


def answered(file: Path, answers: bytes) -> tuple[subprocess.CompletedProcess[bytes], str]:
    """What becomes of these answers, typed on a terminal, and what it shows."""
    primary, secondary = pty.openpty()
    os.write(primary, answers)
    code = "from harness.commands.start import main; main()"
    asked = subprocess.run(
        [sys.executable, "-c", code, "init", str(file)],
        stdin=secondary, stdout=secondary, stderr=subprocess.PIPE, timeout=240, check=False,
    )  # fmt: skip
    os.close(secondary)
    shown = os.read(primary, 1 << 16).decode()
    os.close(primary)
    return asked, shown


def test_on_a_terminal_it_asks_and_asks_again(tmp_path: Path) -> None:
    asked, shown = answered(
        tmp_path / "a.toml", b"1\n251\n200\nx\n2\nreduce, broadcast\nbanana\n1MiB\nbalnce\nbalance\n\n2\n"
    )
    assert asked.returncode == 0, asked.stderr
    assert "give a whole number" in shown and "did you mean 'balance'" in shown
    assert "--hosts 1: a collective needs at least 2" in shown and "must be at most 250" in shown
    assert "--size banana: is not a size" in shown
    made = load(tmp_path / "a.toml")
    assert len(made.cluster.host_names()) == 200
    assert {trial.value("collective") for trial in plan(made)} == {"reduce", "broadcast"}
    assert [system.name for system in made.systems] == ["balance"] and made.sweep.repeats.max == 2


def test_the_end_of_the_input_at_a_question_writes_nothing(tmp_path: Path) -> None:
    asked, _ = answered(tmp_path / "a.toml", b"4\n\x04")
    assert asked.returncode == 130
    assert asked.stderr.endswith(b"interrupted: nothing is written\n") and b"Traceback" not in asked.stderr
    assert not list(tmp_path.iterdir())


def test_a_name_of_any_letters_makes_a_valid_file(tmp_path: Path) -> None:
    file = tmp_path / "\u00e9\n\x7f\u2028.toml"
    init(file, Answers(), ask=False, force=False)
    assert load(file).name == "experiment"


def test_a_folder_that_is_not_there_is_one_line_and_a_name_with_a_space_is_quoted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match=r"^--nccl-tests nowhere: not a folder; name the one with the built programs"):
        init(tmp_path / "one.toml", Answers(nccl_tests=Path("nowhere")), ask=False, force=False)
    init(tmp_path / "my one.toml", Answers(), ask=False, force=False)
    assert f"harness sweep '{tmp_path}/my one.toml'" in capsys.readouterr().out


def test_a_folder_is_no_experiment_and_none_is_made(tmp_path: Path) -> None:
    for force in (False, True):
        with pytest.raises(UsageError, match="is a folder; name a file in it"):
            init(tmp_path, Answers(), ask=False, force=force)
        with pytest.raises(UsageError, match="there is no such folder; make it first"):
            init(tmp_path / "nope" / "x.toml", Answers(), ask=False, force=force)
    assert not list(tmp_path.iterdir())
