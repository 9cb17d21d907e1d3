"""Every fault that takes a kernel, a driver or a machine of the host's own, for real on virtual machines.

    pytest -m vms tests/faults/test_faults_vms.py

What still passes is asked by pings, what RDMA sees by the port's state; then all is as it was, and healed twice.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import guests
import pytest

from faults.registry import create
from harness.experiment.file import load
from harness.hosts.base import Completed
from harness.hosts.each import all_results, for_each
from harness.hosts.state import State, differences, read_state
from harness.sweep.breakage import Breakage
from harness.sweep.rehearse import rehearse
from harness.sweep.scenario import Injection
from harness.sweep.testbed import HostTestbed

LIMIT_S = 60.0
PORT_STATE = ("cat", "/sys/class/infiniband/rxe1/ports/1/state")

pytestmark = [pytest.mark.vms, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def testbed() -> Iterator[HostTestbed]:
    with guests.made('hosts=2, nics=2, rdma="rxe", rate="200 Mbit/s"') as made:
        yield made


def ping(testbed: HostTestbed, *words: str) -> Completed:
    """From host0 to host1 on rail 1."""
    argv = ("/run/guest/ping", "-W", "2", "-I", "eth1", *words, "10.101.0.2")
    return testbed.host("host0").run(argv, check=False, timeout_s=120)


def passes(testbed: HostTestbed) -> bool:
    return ping(testbed, "-c", "1").returncode == 0


def dead(testbed: HostTestbed) -> bool:
    return not passes(testbed)


def port_is_down(testbed: HostTestbed) -> bool:
    return "DOWN" in testbed.host("host1").run(PORT_STATE).stdout and dead(testbed)


def slow(testbed: HostTestbed) -> bool:
    """Both ways are host1's: only its answers are late."""
    return float(re.findall(r"time=([\d.]+)", ping(testbed, "-c", "2").stdout)[-1]) > 250


def doubled(testbed: HostTestbed) -> bool:
    return "DUP!" in ping(testbed, "-c", "3").stdout


def damaged(testbed: HostTestbed) -> bool:
    """One flipped bit in every packet: at most the odd one is in padding that nobody checks."""
    return ping(testbed, "-c", "5", "-i", "0.2").stdout.count("time=") < 3


def out_of_order(testbed: HostTestbed) -> bool:
    numbers = [int(n) for n in re.findall(r"seq=(\d+)", ping(testbed, "-c", "40", "-i", "0.01").stdout)]
    return numbers != sorted(numbers)


CASES: list[tuple[str, dict[str, Any], Callable[[HostTestbed], bool]]] = [
    ("delay", {"delay": "300 ms"}, slow),
    ("corrupt", {"percent": 100}, damaged),
    ("reorder", {"percent": 50, "delay": "300 ms"}, out_of_order),
    ("duplicate", {"percent": 100}, doubled),
    ("cable_pull", {}, port_is_down),
    ("switch_port_down", {}, port_is_down),
    ("ib_port_down", {}, port_is_down),
    ("gid_removed", {}, dead),
    ("nic_unbind", {}, dead),
    ("nic_unplug", {}, dead),
    ("host_pause", {}, dead),
]


def states(testbed: HostTestbed) -> Mapping[str, State]:
    return all_results(for_each(testbed.hosts, lambda host: read_state(host, [nic.name for nic in host.nics])))


def changes(testbed: HostTestbed, before: Mapping[str, State]) -> list[str]:
    now = states(testbed)
    return [line for place in before for line in differences(place, before[place], now[place])]


def until(condition: Callable[[], bool]) -> None:
    guests.until(condition, LIMIT_S)


@pytest.mark.parametrize(("kind", "parameters", "broken"), CASES, ids=[case[0] for case in CASES])
def test_it_takes_effect_and_leaves_nothing(
    testbed: HostTestbed, kind: str, parameters: dict[str, Any], broken: Callable[[HostTestbed], bool]
) -> None:
    until(lambda: passes(testbed))
    before = states(testbed)
    with guests.struck(testbed, kind, "host1", "eth1", **parameters) as breakage:
        until(lambda: broken(testbed))
    until(lambda: changes(testbed, before) == [])
    for order in create(kind, parameters).recipe(breakage.targets[0]).heal:
        argv = (order.argv[0].lstrip("-"), *order.argv[1:])
        testbed.place(order.place).run(argv, check=not order.argv[0].startswith("-"))
    assert changes(testbed, before) == []
    until(lambda: passes(testbed) and "ACTIVE" in testbed.host("host1").run(PORT_STATE).stdout)


@pytest.mark.parametrize("kind", ["host_reset", "host_power_off"])
def test_a_host_that_restarts_comes_back_as_it_was(testbed: HostTestbed, kind: str) -> None:
    until(lambda: passes(testbed))
    before = states(testbed)
    testbed.host("host1").run(("touch", "/tmp/gone_with_the_boot"))
    breakage = Breakage(testbed, Injection(kind, "host1", "eth1"), "test")
    breakage.arm({}, 300)
    breakage.fire()
    until(lambda: dead(testbed))
    breakage.heal()
    breakage.await_return()
    assert (breakage.unseen, breakage.left) == ([], [])
    until(lambda: changes(testbed, before) == [] and passes(testbed))
    assert testbed.host("host1").run(("ls", "/tmp/gone_with_the_boot"), check=False).returncode != 0
    assert testbed.host("host1").claim(None) is None


def test_a_pause_stops_the_clock_by_as_long_as_it_lasts(testbed: HostTestbed) -> None:
    testbed.measure_clocks()
    before_ns = testbed.offset_ns("host1")
    with guests.struck(testbed, "host_pause", "host1", "eth1") as breakage:
        time.sleep(1)
    assert breakage.effect_ns is not None
    assert testbed.offset_ns("host1") - before_ns < -0.5e9
    assert abs(testbed.clock("host1").at(breakage.effect_ns[0]).offset_ns - before_ns) < 0.2e9


def test_the_guests_can_make_every_fault_of_the_experiment(testbed: HostTestbed) -> None:
    kernels = load(guests.EXPERIMENTS / "kernels.toml", ["cluster.hosts=2"])
    rehearse(HostTestbed(kernels, testbed.hosts, testbed.switches))
