"""Healers and their journal for real: whatever dies, in whatever order, what was broken is healed, and only that."""

import json
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from conditions import until

from harness.cluster.processes import identify
from harness.errors import CommandError, HostError
from harness.hosts import arms
from harness.hosts.arms import Arm, RefusedError
from harness.hosts.base import Orders
from harness.hosts.noop import NoopHost, PipeChannel
from harness.hosts.session import source_of

FAULT = f"test-{os.getpid()}"


@pytest.fixture
def agent(host_python: str) -> Iterator[NoopHost]:
    host = NoopHost("one", python=host_python)
    host.connect()
    yield host
    host.close()


@pytest.fixture
def agents(agent: NoopHost, host_python: str) -> Iterator[list[NoopHost]]:
    """Two agents on one host."""
    other = NoopHost("two", python=host_python)
    other.connect()
    yield [agent, other]
    other.close()


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """There while the fault is."""
    return tmp_path / "mark"


def orders(mark: Path, **more: Any) -> Orders:
    return Orders(inject=(("touch", str(mark)),), heal=(("rm", "-f", str(mark)),), **more)


def inject(host: NoopHost, made: Orders, ttl_s: float = 60) -> None:
    host.prepare(FAULT, made, ttl_s)
    host.fire(FAULT)


def agent_pid(host: NoopHost) -> int:
    channel = host.session()._channel
    assert isinstance(channel, PipeChannel)
    return channel.pid


def entry_of(host: NoopHost) -> Path:
    return arms.journal_folder() / f"{agent_pid(host)}-{FAULT}.json"


def healer_pid(host: NoopHost) -> int:
    return int(json.loads(entry_of(host).read_text())["pid"])


# Who dies ------------------------------------------------------------------------------------------------


def test_the_journal_is_there_before_the_fault_and_goes_with_it(agent: NoopHost, mark: Path) -> None:
    agent.prepare(FAULT, orders(mark), 60)
    assert json.loads(entry_of(agent).read_text())["heal"] == [["rm", "-f", str(mark)]]
    agent.fire(FAULT)
    agent.heal(FAULT)
    assert not mark.exists() and not entry_of(agent).exists()


def test_what_dead_agents_and_healers_left_is_healed_from_the_journal(agents: list[NoopHost], mark: Path) -> None:
    inject(agents[0], orders(mark))
    entry, healer = entry_of(agents[0]), healer_pid(agents[0])
    os.kill(agent_pid(agents[0]), signal.SIGSTOP)  # the healer must not see it end first
    os.kill(healer, signal.SIGKILL)
    os.kill(agent_pid(agents[0]), signal.SIGKILL)
    assert mark.exists() and entry.exists()
    until(lambda: entry.stem in agents[1].heal_journal(all=False) or not mark.exists())
    assert not mark.exists() and not entry.exists()
    assert agents[1].heal_journal(all=False) == []


def test_a_living_healers_entry_is_left_alone_unless_all_is_asked_for(agents: list[NoopHost], mark: Path) -> None:
    inject(agents[0], orders(mark))
    entry = entry_of(agents[0])
    assert entry.stem not in agents[1].heal_journal(all=False)
    assert mark.exists() and entry.exists()
    assert entry.stem in agents[1].heal_journal(all=True)
    assert not mark.exists() and not entry.exists()
    healed_ns = agents[0].heal(FAULT)
    assert healed_ns is not None and healed_ns < time.time_ns()


def test_an_agents_own_arms_are_no_left_overs(agent: NoopHost, mark: Path) -> None:
    inject(agent, orders(mark))
    assert entry_of(agent).stem not in agent.heal_journal(all=True)
    assert mark.exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_healer_that_is_asked_to_leave_heals_first(agent: NoopHost, mark: Path, number: signal.Signals) -> None:
    inject(agent, orders(mark))
    entry = entry_of(agent)
    os.kill(healer_pid(agent), number)
    until(lambda: not mark.exists() and not entry.exists())


def test_two_agents_have_arms_of_the_same_name(agents: list[NoopHost], tmp_path: Path) -> None:
    marks = [tmp_path / "a", tmp_path / "b"]
    for host, mark in zip(agents, marks, strict=True):
        inject(host, orders(mark))
    agents[0].heal(FAULT)
    assert not marks[0].exists() and marks[1].exists()
    agents[1].heal(FAULT)
    assert not marks[1].exists()


# What repeats, and what runs beside ----------------------------------------------------------------------


@pytest.mark.parametrize("after_ms", [0, 1, 2, 3, 5, 8, 13, 21, 34])
@pytest.mark.parametrize("end", ["heal", "ttl", "term", "agent"])
def test_what_repeats_ends_up_at_whatever_moment(agent: NoopHost, tmp_path: Path, after_ms: int, end: str) -> None:
    link = str(tmp_path / "link")
    down, up = ("ln", "-sfn", "down", link), ("ln", "-sfn", "up", link)
    inject(agent, Orders((down,), (up,), ((0.003, up), (0.003, down))), 1 + after_ms / 1e3 if end == "ttl" else 60)
    entry = entry_of(agent)
    time.sleep(after_ms / 1e3)
    match end:
        case "heal":
            agent.heal(FAULT)
        case "term":
            os.kill(healer_pid(agent), signal.SIGTERM)
        case "agent":
            os.kill(agent_pid(agent), signal.SIGKILL)
    until(lambda: not entry.exists())
    assert Path(link).readlink() == Path("up")
    time.sleep(0.01)
    assert Path(link).readlink() == Path("up")


def test_what_repeats_and_fails_is_told_once_it_is_healed(agent: NoopHost, mark: Path) -> None:
    fails = ((0.0, ("sh", "-c", "echo cannot >&2; exit 6")), (0.01, ("true",)))
    inject(agent, orders(mark, repeat=fails))
    time.sleep(0.1)
    with pytest.raises(CommandError, match="exit status 6: cannot"):
        agent.heal(FAULT)
    assert not mark.exists() and not entry_of(agent).exists()


BEGIN = "echo ready; read go; echo at work"
"""What a program beside says and waits for."""


def running(tmp_path: Path, script: str) -> tuple[tuple[str, ...], Path]:
    """A program that writes down its number, then goes on as `script` says."""
    number = tmp_path / "number"
    return ("sh", "-c", f"echo $$ > {number}.part; mv {number}.part {number}; {script}"), number


@pytest.mark.parametrize("script", [f"{BEGIN}; exec cat", f"{BEGIN}; trap '' TERM; exec sleep 1000"])
def test_what_runs_beside_ends_with_the_fault(agent: NoopHost, mark: Path, tmp_path: Path, script: str) -> None:
    argv, number = running(tmp_path, script)
    inject(agent, orders(mark, beside=(argv,)))
    pid = int(number.read_text())
    assert identify(pid) is not None
    agent.heal(FAULT)
    assert identify(pid) is None and not mark.exists()


def test_what_runs_beside_outlives_neither_agent_nor_healer(agent: NoopHost, mark: Path, tmp_path: Path) -> None:
    argv, number = running(tmp_path, f"{BEGIN}; exec cat")
    inject(agent, orders(mark, beside=(argv,)))
    pid = int(number.read_text())
    os.kill(healer_pid(agent), signal.SIGKILL)
    until(lambda: identify(pid) is None)
    assert agent.heal(FAULT) is not None
    assert not mark.exists()


def test_an_agent_that_dies_while_something_starts_beside_leaves_nothing(
    agent: NoopHost, mark: Path, tmp_path: Path
) -> None:
    argv, number = running(tmp_path, "echo ready; read go; sleep 0.3; echo at work; exec cat")
    agent.prepare(FAULT, orders(mark, beside=(argv,)), 60)
    entry, pid = entry_of(agent), agent_pid(agent)
    agent.session()._send(10_000, Future(), _fire_request())
    until(number.exists)
    os.kill(pid, signal.SIGKILL)
    until(lambda: not mark.exists() and not entry.exists())
    until(lambda: identify(int(number.read_text())) is None)


def _fire_request() -> dict[str, Any]:
    return {"id": 10_000, "op": "fire", "arm": FAULT, "after": None}


def test_what_cannot_start_beside_says_why_and_everything_is_healed(agent: NoopHost, mark: Path) -> None:
    with pytest.raises(CommandError, match="exit status 3: no luck"):
        inject(agent, orders(mark, beside=(("sh", "-c", "echo no luck >&2; exit 3"),)))
    assert not mark.exists() and not entry_of(agent).exists()
    assert agent.heal(FAULT) is None


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("read go", "was not ready within"),
        ("echo ready; read go; read heal", "ended before the fault began; it healed"),
    ],
)
def test_what_never_gets_to_work_beside_ends_with_the_time_to_live(
    agent: NoopHost, mark: Path, script: str, told: str
) -> None:
    with pytest.raises(HostError, match=told):
        inject(agent, orders(mark, beside=(("sh", "-c", script),)), ttl_s=0.5)
    assert not mark.exists()


def test_what_ends_beside_too_early_does_no_harm(agent: NoopHost, mark: Path) -> None:
    inject(agent, orders(mark, beside=(("sh", "-c", BEGIN),)))
    assert agent.heal(FAULT) is not None
    assert not mark.exists()


# What fails ----------------------------------------------------------------------------------------------


def test_a_command_with_a_dash_may_fail_and_one_without_may_not(agent: NoopHost, mark: Path) -> None:
    lenient = Orders(inject=(("-false",), ("touch", str(mark))), heal=(("-false",), ("rm", str(mark))))
    inject(agent, lenient)
    assert mark.exists()
    assert agent.heal(FAULT) is not None
    assert not mark.exists()
    with pytest.raises(CommandError, match="false: exit status 1"):
        inject(agent, Orders(inject=(("false",),)))


def test_after_a_failed_heal_the_rest_is_healed_and_the_journal_stays(
    agents: list[NoopHost], mark: Path, tmp_path: Path
) -> None:
    obstacle = tmp_path / "obstacle"
    obstacle.touch()
    stuck = ("test", "!", "-e", str(obstacle))
    inject(agents[0], Orders((("touch", str(mark)),), (stuck, ("rm", "-f", str(mark)))))
    entry = entry_of(agents[0])
    with pytest.raises(CommandError, match="exit status 1"):
        agents[0].heal(FAULT)
    assert not mark.exists() and entry.exists()
    with pytest.raises(CommandError, match="exit status 1"):
        agents[1].heal_journal(all=False)
    assert entry.exists()
    obstacle.unlink()
    assert entry.stem in agents[1].heal_journal(all=False)
    assert not entry.exists()


def test_one_entry_that_fails_does_not_keep_others_from_healing(agent: NoopHost, mark: Path) -> None:
    folder = arms.journal_folder()
    entries = [folder / f"{FAULT}-{name}.json" for name in ("a", "b")]
    for entry, heal in zip(entries, (["false"], ["rm", "-f", str(mark)]), strict=True):
        entry.write_text(json.dumps({"pid": 1, "ticks": "-1", "heal": [heal]}))
    mark.touch()
    try:
        with pytest.raises(CommandError, match="false"):
            agent.heal_journal(all=False)
        assert not mark.exists() and [entry.exists() for entry in entries] == [True, False]
    finally:
        entries[0].unlink()


# The journal ---------------------------------------------------------------------------------------------


def test_a_stale_entry_whose_number_is_anothers_by_now_hurts_nobody(agent: NoopHost, mark: Path) -> None:
    entry = arms.journal_folder() / f"{FAULT}-stale.json"
    entry.write_text(json.dumps({"pid": os.getpid(), "ticks": "1", "heal": [["rm", "-f", str(mark)]]}))
    mark.touch()
    asked: list[int] = []
    usual = signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    try:
        assert entry.stem in agent.heal_journal(all=True)
    finally:
        signal.signal(signal.SIGTERM, usual)
    assert not mark.exists() and not entry.exists() and asked == []


@pytest.mark.parametrize("text", ["", '{"pid": 1, "he', "[]", "{}", "null", '{"pid": 1, "ticks": "1"}', "\0\0\0"])
def test_a_file_that_is_no_entry_hinders_no_other(agent: NoopHost, mark: Path, text: str) -> None:
    folder = arms.journal_folder()
    broken, whole = folder / f"{FAULT}-0.json", folder / f"{FAULT}-1.json"
    broken.write_text(text)
    whole.write_text(json.dumps({"pid": 1, "ticks": "-1", "heal": [["rm", "-f", str(mark)]]}))
    mark.touch()
    try:
        assert agent.heal_journal(all=True) == [whole.stem]
        assert not mark.exists()
    finally:
        broken.unlink()


def test_the_first_folder_that_can_be_written_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    wrong, good = tmp_path / "file" / "r2ccl", tmp_path / "good"
    monkeypatch.setattr(arms, "journal_folders", lambda: iter([wrong, good]))
    assert arms.journal_folder() == good
    monkeypatch.setattr(arms, "journal_folders", lambda: iter([wrong]))
    with pytest.raises(RefusedError, match="no folder for what must be healed; make /run/r2ccl writable"):
        arms.journal_folder()


@pytest.mark.skipif(os.getuid() != 0, reason="gives a folder to somebody else, which only root can")
def test_a_folder_of_somebody_else_is_neither_written_nor_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "x.json").write_text(json.dumps({"pid": 1, "ticks": "-1", "heal": [["touch", str(tmp_path / "evil")]]}))
    os.chown(theirs, 65534, 65534)
    monkeypatch.setattr(arms, "journal_folders", lambda: iter([theirs]))
    assert list(arms.journal()) == []
    with pytest.raises(RefusedError):
        arms.journal_folder()


def test_a_healer_that_cannot_write_its_journal_is_not_armed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mark: Path
) -> None:
    monkeypatch.setattr(arms, "journal_folder", lambda: tmp_path / "gone")
    empty = {"inject": [["touch", str(mark)]], "heal": [], "repeat": [], "beside": []}
    with pytest.raises(RefusedError, match=r"the healer did not start; is .*gone writable"):
        Arm("f", source_of("healer"), empty, 60)
    assert not mark.exists()
