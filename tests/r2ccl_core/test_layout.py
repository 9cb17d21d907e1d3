"""Which ranks share a host: the layout, and the bytes between ranks of one host."""

import subprocess
import sys
from pathlib import Path

import pytest

from r2ccl_core.host.layout import Layout, Location, this_host

ETH = (("eth0", "10.0.0.1"), ("eth1", "10.0.1.1"))
OTHER = (("eth0", "10.0.0.2"), ("eth1", "10.0.1.2"))


@pytest.mark.parametrize(
    ("locations", "hosts", "gpus"),
    [
        ([Location("a", ETH), Location("a", ETH), Location("b", OTHER), Location("b", OTHER)], (0, 0, 1, 1), 2),
        ([Location("a", ETH), Location("b", OTHER)], (0, 1), 1),
        (
            [Location("a", ETH), Location("b", OTHER), Location("a", ETH), Location("b", OTHER)],
            (0, 1, 0, 1),
            1,
        ),  # not in a row
        ([Location("a", ETH), Location("a", ETH), Location("b", OTHER)], (0, 0, 1), 1),  # not equally many
        ([Location("a", ETH[:1]), Location("a", ETH[1:])], (0, 0), 1),  # one NIC each: nothing is shared
        ([Location("", ETH), Location("", ETH)], (0, 1), 1),  # hosts that cannot be told are hosts of their own
        ([Location("a", ETH)], (0,), 1),
    ],
)
def test_ranks_are_grouped_where_all_hosts_are_alike(
    locations: list[Location], hosts: tuple[int, ...], gpus: int
) -> None:
    layout = Layout.of([Location.decode(location.encode()) for location in locations])
    assert layout == Layout(hosts, gpus)
    assert layout.together(0, len(locations) - 1) == (hosts[0] == hosts[-1])
    assert layout.has_company(0) == (hosts.count(hosts[0]) > 1)


def test_addresses_of_loopback_stand_for_hosts() -> None:
    assert this_host([("lo", "127.0.1.1"), ("lo", "127.0.1.2")]) == ""
    assert this_host(ETH) == this_host(OTHER) != ""


TWO_RANKS = """
import subprocess, sys, threading
import numpy as np
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
subprocess.run(["ip", "link", "add", "eth0", "type", "veth", "peer", "name", "far"], check=True)
subprocess.run(["ip", "addr", "add", "10.77.0.1/24", "dev", "eth0"], check=True)
subprocess.run(["ip", "link", "set", "eth0", "up"], check=True)
from r2ccl_core.runtime.communicator import Communicator
sums, sent = [None, None], [None, None]
def run(rank):
    with Communicator(rank, 2, "127.0.0.1:7000", nics=[("eth0", "10.77.0.1")], mode=2) as comm:
        sums[rank] = comm.all_reduce(np.arange(300_000) + rank)
        sent[rank] = [nic["tx_bytes"] for nic in comm.stats()["nics"]]
threads = [threading.Thread(target=run, args=(rank,)) for rank in (0, 1)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert all(np.array_equal(total, 2 * np.arange(300_000) + 1) for total in sums), sums
assert sent == [[0], [0]], sent
print("both")
"""


def test_ranks_of_one_host_meet_over_loopback(tmp_path: Path) -> None:
    script = tmp_path / "two_ranks.py"
    script.write_text(TWO_RANKS)
    done = subprocess.run(
        ["unshare", "--map-root-user", "--net", sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=240,
    )
    if "unshare" in done.stderr:
        pytest.skip(f"no network namespace can be made here: {done.stderr.strip()}")
    assert done.stdout == "both\n", done.stderr
