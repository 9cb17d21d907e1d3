"""A NIC's loss and return are told once each, to `logging` and to a callback."""

import logging
import subprocess
import sys
import threading
from typing import Any

import pytest

from r2ccl_core.runtime.communicator import Communicator
from r2ccl_core.runtime.nets import Nets
from r2ccl_core.runtime.nic_watch import Changes, NicChange, NicWatch


def nic(state: str, name: str = "eth0", cut_off: int = 0) -> dict[str, Any]:
    down = 0 if state == "up" else 1
    return {"name": name, "address": "10.0.0.1", "state": state, "paths_down": down, "paths_cut_off": cut_off}


DOWN = {"kind": "path_down", "nic": "eth0", "peer": "10.0.0.2", "detail": "link down"}
HELD = {**DOWN, "kind": "path_held", "detail": "late"}
OTHER = {**DOWN, "nic": "eth1", "detail": "no acknowledgement"}


def test_each_change_is_news_once_and_paths_that_are_being_made_are_none() -> None:
    changes = Changes()
    for _ in range(3):
        assert changes.update([nic("down")], list) == [], "not yet made"
    assert changes.update([nic("up")], lambda: pytest.fail("no path is down")) == []
    lost = NicChange("eth0", "10.0.0.1", "down", "to 10.0.0.2: link down")
    assert changes.update([nic("down"), nic("up", "eth1")], lambda: [OTHER, DOWN, OTHER]) == []
    assert changes.update([nic("down"), nic("up", "eth1")], lambda: [OTHER, DOWN, OTHER]) == [lost]
    assert changes.update([nic("down")], lambda: [DOWN]) == []
    [partly] = changes.update([nic("partial")], lambda: [DOWN])
    assert (partly.state, str(partly)) == ("partial", "NIC eth0 10.0.0.1 is back for some of its paths")
    assert changes.update([nic("up")], lambda: [DOWN]) == [NicChange("eth0", "10.0.0.1", "up", was="partial")]
    assert changes.update([nic("partial")], lambda: [DOWN, HELD]) == []
    [held] = changes.update([nic("partial")], lambda: [DOWN, HELD])
    assert str(held) == "NIC eth0 10.0.0.1 carries nothing over some of its paths (to 10.0.0.2: late)"
    assert str(NicChange("eth0", "10.0.0.1", "up")) == "NIC eth0 10.0.0.1 is back"
    assert str(lost) == "NIC eth0 10.0.0.1 is lost (to 10.0.0.2: link down)"


def test_a_nic_that_is_held_back_is_not_lost_until_it_is() -> None:
    changes = Changes()
    for _ in range(2):
        held = changes.update([nic("held")], lambda: [DOWN, HELD, OTHER])
    assert held == [NicChange("eth0", "10.0.0.1", "held", "to 10.0.0.2: late")]
    assert str(held[0]) == "NIC eth0 10.0.0.1 is held back (to 10.0.0.2: late)"
    for _ in range(2):
        lost = changes.update([nic("down")], lambda: [HELD, DOWN])
    assert lost == [NicChange("eth0", "10.0.0.1", "down", "to 10.0.0.2: link down", "held")]
    for _ in range(2):
        again = changes.update([nic("held")], lambda: [HELD, DOWN, HELD])
    assert again == [NicChange("eth0", "10.0.0.1", "held", "to 10.0.0.2: late", "down")]
    [partly] = changes.update([nic("partial")], lambda: pytest.fail("it recovers"))
    assert str(partly) == "NIC eth0 10.0.0.1 is back for some of its paths"


def test_a_loss_that_one_look_alone_sees_is_not_told() -> None:
    changes = Changes()
    for _ in range(2):  # the connections of a peer that ends, before the transport knows that it did
        assert changes.update([nic("partial")], lambda: [DOWN]) == []
        assert changes.update([nic("up")], lambda: [DOWN]) == []


def test_a_loss_is_told_later_where_the_peer_may_have_ended() -> None:
    changes = Changes()
    for _ in range(19):
        assert changes.update([nic("partial", cut_off=1)], lambda: [DOWN]) == []
    [lost] = changes.update([nic("partial", cut_off=1)], lambda: [DOWN])
    assert lost.state == "partial"


class FakeNets(Nets):
    """Its state is what the test says."""

    def __init__(self) -> None:
        self.state = "up"

    def nics(self) -> list[dict[str, Any]]:
        return [nic(self.state)]

    def stats(self) -> dict[str, Any]:
        return {"events": [DOWN]}


def test_what_a_callback_raises_is_logged_and_the_next_change_is_told(caplog: pytest.LogCaptureFixture) -> None:
    nets, heard, came = FakeNets(), [], threading.Semaphore(0)

    def on_nic(change: NicChange) -> None:
        heard.append(change.state)
        came.release()
        raise ValueError("of the program")

    watch = NicWatch(3, nets, on_nic)
    with caplog.at_level(logging.INFO, "r2ccl_core"):
        watch.begin()
        for state in ("down", "up"):
            nets.state = state
            assert came.acquire(timeout=240)
        watch.end()
        watch.end()
    assert heard == ["down", "up"]
    told = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert told[0] == ("WARNING", "rank 3: NIC eth0 10.0.0.1 is lost (to 10.0.0.2: link down)")
    assert (
        told[1][1] == "rank 3: the callback for NICs failed" and ("INFO", "rank 3: NIC eth0 10.0.0.1 is back") in told
    )


def test_a_communicator_takes_a_callback() -> None:
    before = set(threading.enumerate())  # of communicators that other tests have left, say
    with Communicator(0, 1, nics=[("lo", "127.0.0.1")], on_nic=lambda change: None) as comm:
        comm.barrier()
        (watching,) = (one for one in threading.enumerate() if one not in before and one.name == "r2ccl-nics")
    assert not watching.is_alive()


ROUTED = """
set -e
ip link add eno1 type veth peer name ens1
ip address add 192.0.2.1/24 dev eno1
ip address add 198.51.100.1/24 dev ens1
ip link add ens2 type veth peer name ens3
ip link set ens2 alias "management of a rack"
ip address add 203.0.113.1/24 dev ens2
for name in eno1 ens1 ens2; do ip link set $name up; done
mount -t sysfs here /sys
ip route add default via 192.0.2.254 dev eno1
exec "$0" -c "$1"
"""
LOOK = """
import logging
logging.basicConfig(level=logging.INFO, format="%(message)s")
from r2ccl_core.host.nics import find_nics
print([[name for name, _ in find_nics({"R2CC_SOCKET_IFNAME": chosen})] for chosen in ("", "=eno1", "en")])
"""


def test_nics_of_the_management_network_are_no_data_nics_unless_they_are_named() -> None:
    """By the same rule as under NCCL, whose cases are in native/tests/base_test.cc."""
    argv = ["unshare", "--map-root-user", "--net", "--mount", "sh", "-c", ROUTED, sys.executable, LOOK]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=240)
    if "unshare" in done.stderr:
        pytest.skip(f"no network namespace can be made here: {done.stderr.strip()}")
    assert done.stdout == "[['ens1'], ['eno1'], ['eno1', 'ens1', 'ens2']]\n", done.stderr
    assert done.stderr.splitlines() == [
        "no data NIC: ens2 is marked as management; R2CC_SOCKET_IFNAME can name it",
        "no data NIC: eno1 has the default route; R2CC_SOCKET_IFNAME can name it",
    ]


def test_a_lost_nic_is_on_stderr_where_logging_is_not_configured() -> None:
    program = "import r2ccl_core.runtime.nic_watch as w; w._log.warning('eth1 is lost'); w._log.info('no news')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == "eth1 is lost\n"
