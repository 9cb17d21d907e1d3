"""Hosts as Slurm and MPI list them."""

import stat
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.cluster import slurm
from harness.cluster.hostfile import Entry, parse
from harness.commands.inventory import LoginOptions, of_addresses, of_hostfile, of_slurm
from harness.errors import MistakeError
from r2ccl_core.errors import UsageError


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("login", ["login"]),
        ("gpu[01-03,7],login", ["gpu01", "gpu02", "gpu03", "gpu7", "login"]),
        ("rack[1-2]n[8-10]-ib", [f"rack{r}n{n}-ib" for r in (1, 2) for n in (8, 9, 10)]),
        ("gpu[098-101]", ["gpu098", "gpu099", "gpu100", "gpu101"]),
        ("a,b[1],c", ["a", "b1", "c"]),
    ],
)
def test_host_lists_of_slurm(text: str, hosts: list[str]) -> None:
    assert slurm.expand(text) == hosts


@pytest.mark.parametrize(
    "text", ["gpu[1-", "gpu[3-1]", "gpu[a]", "gpu[]", "a b", "$(reboot)", "x[0-99999999]", "x[0-9999][0-9999]"]
)
def test_what_is_no_host_list_is_one_line(text: str) -> None:
    with pytest.raises(UsageError, match=r"^SLURM_JOB_NODELIST: ") as refused:
        slurm.expand(text)
    assert "\n" not in str(refused.value)


@given(st.text(max_size=40))
def test_any_text_is_hosts_or_a_line(text: str) -> None:
    with suppress(UsageError):
        assert all(isinstance(host, str) for host in slurm.expand(text))


def test_slurms_own_program_is_asked_first_and_without_a_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "scontrol"
    program.write_text('#!/bin/sh\nfor word in "$@"; do echo "<$word>"; done\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert slurm.by_scontrol("a;reboot") == ["<show>", "<hostnames>", "<a;reboot>"]
    program.write_text("#!/bin/sh\nexit 1\n")
    assert slurm.hosts({"SLURM_JOB_NODELIST": "n[1-2]"}) == ["n1", "n2"], "where it fails, our own reading"


def test_an_allocation_becomes_hosts() -> None:
    made = of_slurm(LoginOptions(sudo=True), {"SLURM_JOB_NODELIST": "n[1-2]"})
    assert [(host.name, host.address, host.sudo) for host in made.hosts] == [("n1", "n1", True), ("n2", "n2", True)]
    with pytest.raises(UsageError, match="run this inside an allocation"):
        of_slurm(LoginOptions(), {})


OPEN_MPI = """\
# made by hand
node1.lab   slots=8 max_slots=16
ada@node2.lab slots=8   # the second
node1.lab   slots=2
node3.lab username=grace

10.0.0.7
"""


def test_host_files_of_mpi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = [Entry("node1.lab"), Entry("node2.lab", "ada"), Entry("node3.lab", "grace"), Entry("10.0.0.7")]
    assert parse(OPEN_MPI, "f") == hosts
    assert parse("node1:8\n[fd00::7]:4\n", "f") == [Entry("node1"), Entry("fd00::7")]
    path = tmp_path / "hosts"
    path.write_text(OPEN_MPI)
    (tmp_path / "lab").write_text("a key")
    monkeypatch.chdir(tmp_path)
    made = of_hostfile(path, LoginOptions(user="root", port=2222, key=Path("lab")))
    assert [(h.name, h.user, h.port) for h in made.hosts][1:] == [
        ("node2", "ada", 2222),
        ("node3", "grace", 2222),
        ("10.0.0.7", "root", 2222),
    ]
    assert made.hosts[0].key == str(tmp_path / "lab")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("node1 slot=8", "f: line 1: slot=8: unknown key; did you mean 'slots'?"),
        ("\n^node1", "f: line 2: ^node1: is not a host; write it like 'node1 slots=8' or 'node1:8'"),
        ("-oProxyCommand=x", "f: line 1: -oProxyCommand=x: is not a host; write it like 'node1 slots=8' or 'node1:8'"),
        ("# nothing", "f: names no host; write one a line, such as: node1 slots=8"),
    ],
)
def test_what_is_no_host_file_is_one_line(text: str, line: str) -> None:
    with pytest.raises(MistakeError) as refused:
        parse(text, "f")
    assert str(refused.value) == line


def test_names_are_short_where_that_tells_hosts_apart() -> None:
    made = of_addresses(["a.one", "b.one", "a.two", "ada@10.0.0.1", "fd00::7"], LoginOptions())
    assert [host.name for host in made.hosts] == ["a.one", "b", "a.two", "10.0.0.1", "fd00--7"]
    assert made.hosts[3].user == "ada"


@pytest.mark.parametrize(
    ("host", "login", "line"),
    [
        ("a", LoginOptions(port=70000), "--port 70000: must be at most 65535"),
        ("a", LoginOptions(port=-1), "--port -1: must be at least 1"),
        ("a", LoginOptions(user="a b"), "--user a b: is not a login"),
        ("a b@a", LoginOptions(port=22), "HOST: a b: is not a login"),
    ],
)
def test_a_mistake_names_the_option_that_was_given(host: str, login: LoginOptions, line: str) -> None:
    with pytest.raises(UsageError) as refused:
        of_addresses([host], login)
    assert str(refused.value) == line
