"""Kill -9 of the harness at random moments of a sweep with faults: all heals, all is cleaned, nothing is lost.

Three moments by default, as many as R2CCL_KILLS says otherwise (fifty take some five minutes). What it came to is
printed (``pytest -s``).
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from synthetic_run import UNDRAWN

from harness.cluster import namespaces, netlink, rights, sshd, state
from harness.cluster.clean import living
from harness.cluster.layout import NAMESPACE_PREFIX
from harness.cluster.processes import in_namespaces

ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("R2CCL_KILLS", "3"))
EVENTS = 44
"""A sweep is killed at most so many of its events after its start: four trials, on however slow a machine."""
JITTER_S = 0.3
"""And up to so much later: an event comes about every 0.1 s."""
TTL_S = 14.0
"""Of every fault, as the limits below make it: ready and trial, and four seconds."""

EXPERIMENT = """
name = "doomed"
cluster = {hosts = 2, nics = 2}
workload = {backend = "noop", sizes = ["4MiB"], iterations = 6}
system = [{name = "balance", mode = 2}]
fault = [{kind = "nic_down", host = "host1", nic = "eth1", at_progress = 0.2}]
sweep = {repeats = %d, retries = 9, limits = {ready = "4 s", trial = "6 s", iteration = "4 s"}}
"""

pytestmark = [
    pytest.mark.netns,
    pytest.mark.slow,
    pytest.mark.timeout(120 + 120 * KILLS),
    pytest.mark.skipif(
        not rights.have() or shutil.which("sshd", path=sshd.PATH) is None,
        reason="needs the right to make network namespaces, and sshd",
    ),
]


@dataclass
class Tally:
    """What the kills came to."""

    in_fault: int = 0
    """Kills while a fault was in effect."""
    in_cluster: int = 0
    """Kills after which a cluster, or a part of one, was left."""
    slowest_heal_s: float = 0.0


def test_kill_9_at_random_moments(tmp_path: Path) -> None:
    experiment, runs = tmp_path / "doomed.toml", tmp_path / "runs"
    experiment.write_text(EXPERIMENT % (3 * KILLS))
    tally, moments = Tally(), random.Random(9)
    standing = set(ours())
    for number in range(KILLS):
        # Evenly spread, and random within its part: few kills, too, meet every stage of a sweep.
        after = int(EVENTS * (number + moments.random()) / KILLS)
        events = tmp_path / f"events{number}"
        kill_sweep(experiment, runs, events, after, JITTER_S * moments.random())
        kept = finished(runs)
        check_heal(events, tally)
        left = set(ours()) - standing
        tally.in_cluster += bool(left)
        with ExitStack() as held:  # or another test's namespace could get the number of one that is gone
            names = left & set(namespaces.names())
            opened = [held.enter_context(namespaces.path_of(name).open("rb")) for name in names]
            done = harness("clean")
            assert done.returncode == 0, done.stderr
            assert set(ours()) <= standing
            assert in_namespaces("net", {os.fstat(space.fileno()).st_ino for space in opened}) == []
        assert finished(runs) == kept
    last = harness("sweep", str(experiment), "--out", str(runs), before=UNDRAWN)
    # On a busy machine one of many faults may miss its iteration ten times over.
    assert last.returncode in (0, 3), last.stdout + last.stderr
    (run,) = runs.iterdir()
    whole = finished(runs)
    assert {name: whole[name] for name in kept} == kept
    assert {cell_of(path) for path in whole} == {f"balance-4MiB-nic_down-r{n}" for n in range(3 * KILLS)}
    assert json.loads((run / "run.json").read_text())["finished"]
    print(
        f"\n{KILLS} kills: {tally.in_fault} in a fault, {tally.in_cluster} with a cluster left; "
        f"{len(kept)} trials kept, slowest heal {1e3 * tally.slowest_heal_s:.0f} ms"
    )


def kill_sweep(experiment: Path, runs: Path, events: Path, after: int, wait_s: float) -> None:
    """Starts the sweep and kills the harness, and it alone, `wait_s` after so many events."""
    with events.open("w") as out:
        sweep = subprocess.Popen(
            argv("sweep", str(experiment), "--out", str(runs), "--json"), cwd=ROOT, stdout=out, stderr=out
        )
        deadline_s = time.monotonic() + 60
        while len(events.read_text().splitlines()) < after:
            assert time.monotonic() < deadline_s, events.read_text()
            time.sleep(0.005)
        time.sleep(wait_s)
        sweep.send_signal(signal.SIGKILL)
        sweep.wait(30)


def check_heal(events: Path, tally: Tally) -> None:
    """Every NIC of a cluster that was up is up again within its fault's time to live, with nobody's help."""
    told = [json.loads(line)["event"] for line in events.read_text().splitlines() if line.endswith("}")]
    if "trial_begin" not in told:
        return
    in_trial = told[max(i for i, event in enumerate(told) if event == "trial_begin") :]
    tally.in_fault += "fault" in in_trial and "trial_end" not in in_trial
    killed_s = time.monotonic()
    while down := list(nics_down()):
        assert time.monotonic() < killed_s + TTL_S, f"{down} did not heal"
        time.sleep(0.01)
    tally.slowest_heal_s = max(tally.slowest_heal_s, time.monotonic() - killed_s)


def nics_down() -> Iterator[str]:
    for name in namespaces.names():
        if name.startswith(NAMESPACE_PREFIX):
            shown = subprocess.run(["ip", "-json", "-n", name, "link"], capture_output=True, text=True, check=True)
            yield from (
                f"{name} {link['ifname']}"
                for link in json.loads(shown.stdout)
                if link["ifname"].startswith("eth") and "UP" not in link["flags"]
            )


def ours() -> list[str]:
    """Everything that clusters have made here: namespaces, uplinks, directories, mounts; not what is in use."""
    own = [name for name in namespaces.names() if name.startswith(NAMESPACE_PREFIX)]
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    ours = [path for path in mounts if NAMESPACE_PREFIX in path or path.startswith(f"{state.root()}/")]
    return [*own, *netlink.uplinks(), *(set(state.tags()) - set(living())), *ours]


def finished(runs: Path) -> dict[str, tuple[int, str]]:
    """Every trial.json, with when it was written and what it says."""
    return {
        str(path): (path.stat().st_mtime_ns, path.read_text())
        for path in runs.glob("*/trials/*/trial.json")
        if json.loads(path.read_text())
    }


def cell_of(path: str) -> str:
    return Path(path).parent.name.partition("-a")[0]


def harness(*words: str, before: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv(*words, before=before), cwd=ROOT, capture_output=True, text=True
    )  # the test's limit is the limit


def argv(*words: str, before: str = "") -> list[str]:
    return [sys.executable, "-c", f"{before}from harness.commands.cli import main; main()", *words]
