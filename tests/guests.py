"""Virtual machines for tests: skipped where none can run, made into a testbed, with failures that always heal."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness.cluster import rights
from harness.cluster.vms.cluster import VmsCluster, find_program
from harness.errors import ClusterError
from harness.experiment.file import load
from harness.sweep.breakage import Breakage
from harness.sweep.scenario import Injection
from harness.sweep.testbed import HostTestbed

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
SMOKE = EXPERIMENTS / "smoke.toml"
HEALED_S = 600
"""After this long a failure heals itself."""


def needed() -> None:
    """Skips the test where guests cannot run."""
    if not rights.have():
        pytest.skip("needs the right to make network namespaces")
    try:
        find_program()
    except ClusterError as error:
        pytest.skip(str(error))


@contextmanager
def made(cluster: str) -> Iterator[HostTestbed]:
    """A testbed of guests: `cluster` is the table of that name, as an experiment file has it, without its kind."""
    needed()
    experiment = load(SMOKE, [f'cluster={{kind="vms", {cluster}}}', "fault=[]"])
    with VmsCluster(experiment.cluster) as guests:
        testbed = HostTestbed(experiment, guests.hosts, guests.switches)
        testbed.measure_clocks()
        yield testbed


@contextmanager
def struck(testbed: HostTestbed, kind: str, host: str, nic: str, **parameters: Any) -> Iterator[Breakage]:
    """While that failure lasts: it showed every sign, and it is healed at the end, whatever happens."""
    breakage = Breakage(testbed, Injection(kind, host, nic, parameters=parameters), "test")
    breakage.arm({}, HEALED_S)
    try:
        breakage.fire()
        assert breakage.unseen == []
        yield breakage
    finally:
        breakage.heal()
    assert breakage.left == []


def until(condition: Callable[[], bool], limit_s: float) -> None:
    """Waits for it to come true."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"the condition has not come true within {limit_s:g} s"
        time.sleep(0.2)
