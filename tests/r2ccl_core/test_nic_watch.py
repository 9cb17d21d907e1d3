"""A NIC's loss and return are told once each, to `logging` and to a callback."""

import logging
import subprocess
import sys
import threading
from typing import Any

import pytest

from r2ccl_core.host.nics import find_nics, without_default_route
from r2ccl_core.runtime.communicator import Communicator
from r2ccl_core.runtime.nets import Nets
from r2ccl_core.runtime.nic_watch import Changes, NicChange, NicWatch


def nic(state: str, name: str = "eth0") -> dict[str, Any]:
    return {"name": name, "address": "10.0.0.1", "state": state}


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


def test_a_loss_that_one_look_alone_sees_is_not_told() -> None:
    changes = Changes()
    for _ in range(2):  # the connections of a peer that ends, before the transport knows that it did
        assert changes.update([nic("partial")], lambda: [DOWN]) == []
        assert changes.update([nic("up")], lambda: [DOWN]) == []


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


ROUTES = """Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
{}"""
NICS = [("eno1", "10.0.0.1"), ("ens1", "10.1.0.1"), ("ens2", "10.2.0.1")]


def default(name: str, metric: int = 100, flags: str = "0003") -> str:
    return f"{name}\t00000000\t0100000A\t{flags}\t0\t0\t{metric}\t00000000\t0\t0\t0\n"


@pytest.mark.parametrize(
    ("routes", "left"),
    [
        ("", ["eno1", "ens1", "ens2"]),
        ("eno1\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n", ["eno1", "ens1", "ens2"]),
        (default("eno1"), ["ens1", "ens2"]),
        (default("eno1", flags="0002"), ["eno1", "ens1", "ens2"]),
        (default("ens1", 200) + default("eno1", 100) + default("ens2", 300), ["ens1", "ens2"]),
        (default("eno1", 0) + default("ens1", 0), ["ens2"]),
        (default("eno1") + default("ens1") + default("ens2"), ["eno1", "ens1", "ens2"]),
        (default("wlan0"), ["eno1", "ens1", "ens2"]),
    ],
    ids=["none", "net", "one", "down", "metric", "two", "all", "another"],
)
def test_the_nic_of_the_default_route_is_no_data_nic_where_there_are_others(routes: str, left: list[str]) -> None:
    assert [name for name, _ in without_default_route(NICS, ROUTES.format(routes))] == left
    assert without_default_route(NICS[:1], ROUTES.format(routes)) == NICS[:1]


def test_a_nic_that_is_named_is_taken_whatever_its_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("r2ccl_core.host.nics._routes", lambda: ROUTES.format(default("lo")))
    assert find_nics({"R2CC_SOCKET_IFNAME": "=lo"}) == [("lo", "127.0.0.1")]


def test_a_lost_nic_is_on_stderr_where_logging_is_not_configured() -> None:
    program = "import r2ccl_core.runtime.nic_watch as w; w._log.warning('eth1 is lost'); w._log.info('no news')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == "eth1 is lost\n"
