"""The agent for real, as a child of this process: what it runs, samples, breaks, heals, and takes with it."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from conditions import LIMIT_S, until

from harness.cluster.processes import identify
from harness.errors import CommandError, HostError, HostTimeoutError, UnreachableError
from harness.hosts.agent_host import unpack_samples
from harness.hosts.base import Orders
from harness.hosts.noop import NoopHost, PipeChannel


def inject(host: Any, name: str, inject: list[list[str]], heal: list[list[str]], ttl_s: float) -> tuple[int, int]:
    """Arms and fires at once."""
    orders = Orders(tuple(map(tuple, inject)), tuple(map(tuple, heal)))
    host.prepare(name, orders, ttl_s)
    fired: tuple[int, int] = host.fire(name)
    return fired


def agent_pid(host: NoopHost) -> int:
    channel = host.session()._channel
    assert isinstance(channel, PipeChannel)
    return channel.pid


def ignore(stream: str, line: str) -> None:
    pass


def test_run_returns_status_and_both_streams(host: NoopHost) -> None:
    done = host.run(["sh", "-c", "printf 'a\nb'; echo ü >&2; exit 3"], check=False)
    assert (done.returncode, done.stdout, done.stderr) == (3, "a\nb", "ü\n")


def test_run_passes_words_as_they_are(host: NoopHost) -> None:
    assert host.run(["printf", "%s", "$(id) 'x' \"y\"\n"]).stdout == "$(id) 'x' \"y\"\n"


def test_run_takes_much_output(host: NoopHost) -> None:
    assert len(host.run(["head", "-c", "3000000", "/dev/zero"]).stdout) == 3_000_000


def test_run_checks_the_status(host: NoopHost) -> None:
    with pytest.raises(CommandError, match=r"^host7: sh -c .*: exit status 4: no good$") as caught:
        host.run(["sh", "-c", "echo no good >&2; exit 4"])
    assert caught.value.returncode == 4


def test_a_missing_program_is_a_command_error(host: NoopHost) -> None:
    with pytest.raises(CommandError, match="no-such-program: No such file"):
        host.run(["no-such-program"])


def test_run_kills_at_the_time_limit_even_what_ignores_sigterm(host: NoopHost) -> None:
    with pytest.raises(HostTimeoutError, match=r"not ended within 0\.1 s, killed"):
        host.run(["sh", "-c", "trap '' TERM; sleep 100 & wait"], timeout_s=0.1)


def test_start_delivers_every_line_before_the_end(host: NoopHost) -> None:
    lines: list[tuple[str, str]] = []
    script = "echo $X; echo err >&2; i=0; while [ $i -lt 500 ]; do echo $i; i=$((i+1)); done; printf tail"
    process = host.start(["sh", "-c", script], env={"X": "value"}, on_line=lambda *a: lines.append(a))
    assert process.wait(LIMIT_S) == 0
    out = [line for stream, line in lines if stream == "stdout"]
    assert out == ["value", *map(str, range(500)), "tail"]
    assert ("stderr", "err") in lines
    assert process.poll() == 0


def test_signals_reach_the_whole_group(host: NoopHost) -> None:
    lines: list[str] = []
    process = host.start(["sh", "-c", "sleep 1000 & echo $!; wait"], env={}, on_line=lambda _, line: lines.append(line))
    until(lambda: lines)
    process.signal(signal.SIGTERM)
    assert process.wait(LIMIT_S) == -signal.SIGTERM
    until(lambda: identify(int(lines[0])) is None)
    process.signal(signal.SIGTERM)


def test_a_group_ends_with_its_leader(host: NoopHost) -> None:
    left = host.run(["sh", "-c", "sleep 1000 & echo $!"]).stdout
    until(lambda: identify(int(left)) is None)


def test_closing_stdin_ends_a_reader(host: NoopHost) -> None:
    process = host.start(["cat"], env={}, on_line=ignore)
    with pytest.raises(HostTimeoutError, match="has not ended"):
        process.wait(0.01)
    process.close_stdin()
    process.close_stdin()
    assert process.wait(LIMIT_S) == 0


def test_a_callers_mistake_in_on_line_reaches_the_caller(host: NoopHost) -> None:
    def on_line(stream: str, line: str) -> None:
        raise KeyError(line)

    process = host.start(["echo", "x"], env={}, on_line=on_line)
    with pytest.raises(KeyError):
        process.wait(LIMIT_S)
    assert host.run(["echo", "still here"]).stdout == "still here\n"


def test_samples_cover_the_time_and_leave_absent_nics_out(host: NoopHost) -> None:
    begin = host.clock_ns()
    host.sample_start(0.001)
    until(lambda: host.clock_ns() - begin > 100_000_000)
    samples = host.sample_stop()
    assert {s.nic for s in samples} == {"lo"}
    assert all(s.up and s.rx_bytes >= 0 and s.tx_bytes >= 0 for s in samples)
    assert [s.t_ns for s in samples] == sorted(s.t_ns for s in samples)
    assert samples[0].t_ns >= begin
    assert samples[-1].t_ns - begin > 100_000_000
    assert len(samples) > 10
    assert host.sample_stop() == []


def test_samples_are_close_from_the_order_until_the_next_fault(host: NoopHost) -> None:
    host.sample_closely()  # nothing is sampled yet
    host.sample_start(0.05)
    host.sample_closely()
    begin = host.clock_ns()
    until(lambda: host.clock_ns() - begin > 300_000_000)
    fired_ns, _ = inject(host, "a", [["true"]], [["true"]], 60)
    until(lambda: host.clock_ns() - fired_ns > 500_000_000)
    host.heal("a")
    times = [s.t_ns for s in host.sample_stop()]
    assert sum(begin + 60_000_000 < t_ns < fired_ns for t_ns in times) > 30, "6 at the usual interval"
    assert sum(fired_ns + 300_000_000 < t_ns for t_ns in times) < 10, "the usual interval again"


def test_unpacking_no_samples() -> None:
    assert unpack_samples([], "") == []


def test_prepare_fire_heal(host: NoopHost, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    host.prepare("f", Orders((("touch", str(mark)),), (("rm", "-f", str(mark)),)), 60)
    assert not mark.exists()
    before, after = host.fire("f")
    assert mark.exists()
    healed = host.heal("f")
    assert not mark.exists()
    assert healed is not None and before < after < healed
    assert host.heal("f") is None


def test_an_arm_is_not_armed_twice_and_not_fired_unarmed(host: NoopHost) -> None:
    host.prepare("f", Orders(), 60)
    with pytest.raises(HostError, match="armed already"):
        host.prepare("f", Orders(), 60)
    with pytest.raises(HostError, match="not armed"):
        host.fire("g")


def test_a_failing_injection_heals_at_once(host: NoopHost, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    with pytest.raises(CommandError, match="exit status 1"):
        inject(host, "f", [["touch", str(mark)], ["false"]], [["rm", "-f", str(mark)]], 60)
    assert not mark.exists()
    assert host.heal("f") is None


def test_a_missing_tool_is_refused_before_anything_happens(host: NoopHost, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    with pytest.raises(CommandError, match="no-such-tool"):
        inject(host, "f", [["touch", str(mark)]], [["no-such-tool"]], 60)
    assert not mark.exists()


def test_a_failing_heal_is_told_and_can_be_made_up_for(host: NoopHost, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    inject(host, "f", [], [["sh", "-c", f"test -e {mark} || {{ echo cannot >&2; exit 5; }}"]], 60)
    with pytest.raises(CommandError, match="exit status 5: cannot"):
        host.heal("f")
    mark.touch()
    assert any(name.endswith("-f") for name in host.heal_journal(all=False))


def test_the_healer_heals_when_its_time_is_over(host: NoopHost, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    inject(host, "f", [["touch", str(mark)]], [["rm", "-f", str(mark)]], 2.0)
    (healer,) = Path(f"/proc/{agent_pid(host)}/task/{agent_pid(host)}/children").read_text().split()
    until(lambda: identify(int(healer)) is None)
    assert not mark.exists()
    with pytest.raises(HostError, match="has ended already"):
        host.fire("f")
    assert host.heal("f") is not None


def test_a_fault_that_begins_after_its_time_is_healed_and_refused(host: NoopHost, tmp_path: Path) -> None:
    """Its healer was through before the last of its commands, as on a host that others keep busy."""
    mark = tmp_path / "mark"
    with pytest.raises(HostError, match="the healer ended before the fault began; it healed"):
        inject(host, "f", [["sleep", "0.4"], ["touch", str(mark)]], [["rm", "-f", str(mark)]], 0.2)
    assert not mark.exists()
    assert host.heal("f") is None


def test_the_healer_survives_kill_9_of_the_agent(host: NoopHost, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    inject(host, "f", [["touch", str(mark)]], [["rm", "-f", str(mark)]], 60)
    os.kill(agent_pid(host), signal.SIGKILL)
    until(lambda: not mark.exists())
    with pytest.raises(UnreachableError):
        until(lambda: host.clock_ns() < 0)


def test_the_agent_heals_when_the_healer_was_killed(host: NoopHost, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    inject(host, "f", [["touch", str(mark)]], [["rm", "-f", str(mark)]], 60)
    children = Path(f"/proc/{agent_pid(host)}/task/{agent_pid(host)}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGKILL)
    assert host.heal("f") is not None
    assert not mark.exists()


@pytest.mark.parametrize("number", [None, signal.SIGTERM, signal.SIGHUP])
def test_the_agent_takes_everything_with_it(number: signal.Signals | None, tmp_path: Path) -> None:
    host = NoopHost()
    host.connect()
    mark, pids = tmp_path / "mark", list[int]()
    inject(host, "f", [["touch", str(mark)]], [["rm", "-f", str(mark)]], 60)
    script = "trap '' TERM HUP; sleep 1000 & echo $!; echo $$; wait"
    process = host.start(["sh", "-c", script], env={}, on_line=lambda _, line: pids.append(int(line)))
    until(lambda: len(pids) == 2)
    if number is not None:
        os.kill(agent_pid(host), number)
        with pytest.raises(UnreachableError):
            process.wait(LIMIT_S)
    host.close()
    assert not mark.exists()
    until(lambda: not any(identify(pid) for pid in pids))


def test_a_host_that_answers_nonsense_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    host = NoopHost("odd")
    monkeypatch.setattr(host, "open_channel", lambda: PipeChannel(["sh", "-c", "echo Welcome to odd"]))
    with pytest.raises(UnreachableError, match=r"^odd: the agent did not start: .*Welcome to odd"):
        host.connect()


def test_a_host_without_python_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    host = NoopHost("bare")
    script = "echo python3: not found >&2; exit 127"
    monkeypatch.setattr(host, "open_channel", lambda: PipeChannel(["sh", "-c", script]))
    with pytest.raises(UnreachableError, match=r"^bare: the agent did not start: python3: not found$"):
        host.connect()
    with pytest.raises(UnreachableError, match="not connected"):
        host.clock_ns()
