"""Restarts for real: an SSH server that is process 1 of its own namespaces goes, and comes back after another boot."""

import subprocess
import threading
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from conditions import LIMIT_S, until

from harness.cluster import rights, sshd
from harness.cluster.layout import lay_out
from harness.cluster.spec import LocalSpec
from harness.errors import HostError, HostTimeoutError
from harness.hosts.ssh import SshHost, SshLogin
from harness.setup.reboot import BOOT_ID, boot_id, reboot

pytestmark = [
    pytest.mark.netns,
    pytest.mark.skipif(not rights.have(), reason="needs the right to make namespaces"),
]

ADDRESS = "127.52.204.1"
BOOT = """\
set -e
mount -t tmpfs tmpfs /run
mkdir -p /run/sshd
mount --bind "$1/boot_id" "$2"
for name in passwd shadow; do mount --bind "$1/$name" "/etc/$name"; done
exec "$3" -D -f "$1/host0.conf" -E "$1/log"
"""


class Machine:
    """It runs until its process 1 ends; then it starts again, if it may, and its kernel names another boot."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.may_start = threading.Event()
        self.boots = 0
        self._on = True
        self._running: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._live)

    def start(self) -> None:
        self.may_start.set()
        self._thread.start()

    def off(self) -> None:
        self._on = False
        self.may_start.set()
        if self._running is not None:
            self._running.kill()
            self._running.wait()
        self._thread.join()

    def _live(self) -> None:
        while self.may_start.wait() and self._on:
            self.boots += 1
            (self.folder / "boot_id").write_text(f"{uuid.uuid4()}\n")
            words = ["sh", "-c", BOOT, "boot", str(self.folder), BOOT_ID, sshd.find_server()]
            own = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc"]
            self._running = subprocess.Popen([*own, *words])
            self._running.wait()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    layout, account = (
        lay_out(LocalSpec(hosts=1, nics=1), "00000000", ADDRESS.rpartition(".")[0]),
        sshd.Account.current(),
    )
    sshd.write_files(tmp_path, layout, account)
    made = Machine(tmp_path)
    made.start()
    try:
        yield made
    finally:
        made.off()


@pytest.fixture
def host(machine: Machine) -> Iterator[SshHost]:
    folder = machine.folder
    login = SshLogin(ADDRESS, sshd.PORT, sshd.Account.current().name, folder / "login", folder / "known_hosts")
    made = SshHost("node0", login, ())
    until(lambda: connected(made))
    yield made
    made.close()


def connected(host: SshHost) -> bool:
    with suppress(HostError):
        host.connect()
        return True
    return False


def test_a_host_goes_and_comes_back_after_another_boot(machine: Machine, host: SshHost) -> None:
    before = boot_id(host)
    assert before == (machine.folder / "boot_id").read_text().strip()
    machine.may_start.clear()

    def press_the_button() -> None:
        until(lambda: machine._running is not None and machine._running.poll() is not None)
        assert not connected(SshHost("other", host.login, ())), "it is down meanwhile"
        machine.may_start.set()

    button = threading.Thread(target=press_the_button)
    button.start()
    reboot(host, ["kill", "-TERM", "1"], limit_s=LIMIT_S, pause_s=0.05)
    button.join()
    assert machine.boots == 2
    assert boot_id(host) not in (before, ""), "the session is a new one, and works"


def test_a_host_that_does_not_go_down_is_told(host: SshHost) -> None:
    with pytest.raises(
        HostTimeoutError, match=r"^node0: has not come back .*: it answers, and is still the boot before"
    ):
        reboot(host, ["true"], limit_s=0.5, pause_s=0.05)


def test_a_wish_to_stop_ends_the_waiting(machine: Machine, host: SshHost) -> None:
    machine.may_start.clear()
    stopped = threading.Event()
    stopped.set()
    with pytest.raises(HostError, match="nobody waits for it any more"):
        reboot(host, ["kill", "-TERM", "1"], stopped, limit_s=3600.0)


def test_a_host_that_stays_away_is_told(machine: Machine, host: SshHost) -> None:
    machine.may_start.clear()
    with pytest.raises(HostTimeoutError, match=r"^node0: has not come back within 1 s of its restart: "):
        reboot(host, ["kill", "-TERM", "1"], limit_s=1.0, pause_s=0.05)
