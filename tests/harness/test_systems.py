"""The catalogue of systems, and the proof of the network that a trial used."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.backends.nccl_log import parse
from harness.backends.registry import BACKENDS
from harness.errors import InvalidExperimentError
from harness.events import RankRecord, Timed
from harness.experiment.file import read
from harness.experiment.model import Experiment, SystemModel
from harness.hosts.base import Host, Sample
from harness.sweep.judge import Facts, Injected, Judgement
from harness.sweep.networks import network_of, sent_bytes, with_network
from harness.sweep.plan import plan
from harness.sweep.testbed import HostTestbed
from harness.systems.base import PATH
from harness.systems.catalogue import CATALOGUE, ENTRIES
from harness.systems.listing import lines
from harness.systems.network import NOT_ASKED, Proof, from_core, from_counters, from_nccl_log
from reports.trial import Evidence

LOGS = json.loads((Path(__file__).parent / "network_cases" / "nccl_logs.json").read_text())


def experiment(*systems: dict[str, Any], **workload: Any) -> Experiment:
    document = {
        "name": "x",
        "cluster": {"hosts": 2},
        "workload": {"sizes": ["1MiB"], **workload},
        "system": list(systems),
    }
    return read(document, "x.toml")


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_every_entry_makes_a_system_that_a_backend_runs(entry: Any) -> None:
    given = {"use": entry.name} | ({"path": "/opt/lib.so"} if entry.path != "none" else {})
    kinds = {"serve_r2ccl": "serving", "train_r2ccl": "training", "train_torchft": "training"}
    kind = kinds.get(entry.backends[0])
    document = {"name": "x", "cluster": {"hosts": 2}, "workload": {"kind": kind}, "system": [given]}
    made = read(document, "x.toml") if kind else experiment(given, nccl_tests="/opt/build")
    (system,) = made.systems
    assert (system.name, system.mode, system.expect_on_fault) == (entry.name, entry.mode, entry.expect_on_fault)
    assert not any(PATH in value for value in system.env.values())
    assert made.backend_of(system) == entry.backends[0]
    assert set(entry.backends) <= set(BACKENDS)
    assert SystemModel.model_validate(system.model_dump(mode="json")) == system, (
        "what a run stores reads back as itself"
    )
    if entry.backends[0] in ("nccl_tests", "torch_nccl"):
        assert system.env["NCCL_DEBUG"] == "INFO", "without it nothing can be proven"


def test_what_the_experiment_says_wins_over_the_catalogue() -> None:
    given = {"use": "auto", "name": "mine", "mode": 1, "env": {"R2CC_ALGO": "forest", "A": "b"}}
    (system,) = experiment(given).systems
    assert (system.name, system.mode, system.env) == ("mine", 1, {"R2CC_ALGO": "forest", "A": "b"})


def test_systems_of_one_experiment_have_backends_of_their_own() -> None:
    made = experiment({"use": "gloo"}, {"use": "balance"}, {"name": "plain", "mode": 2})
    assert [made.backend_of(system) for system in made.systems] == ["torch_gloo", "perf", "perf"]


@pytest.mark.parametrize(
    ("system", "line"),
    [
        ({"use": "balence"}, "system[0]: use: 'balence' is not a system of the catalogue; did you mean 'balance'?"),
        ({"use": "nccl_plugin"}, "path: the system nccl_plugin needs the path of its plugin"),
        ({"use": "balance", "path": "/x"}, "path: the system balance takes none"),
        ({"use": "gloo", "backend": "perf"}, "system[0].backend: perf: gloo runs with torch_gloo"),
        ({"use": "nccl"}, "workload.nccl_tests: name the folder of a build of nccl-tests"),
    ],
)
def test_a_system_that_cannot_be_is_one_line(system: dict[str, Any], line: str) -> None:
    with pytest.raises(InvalidExperimentError) as refused:
        experiment(system)
    assert line in str(refused.value) and len(str(refused.value).splitlines()) == 1


def test_the_list_names_every_entry() -> None:
    shown = "\n".join(lines())
    code = "from harness.commands.cli import main; main()"
    told = subprocess.run([sys.executable, "-c", code, "systems"], capture_output=True, text=True, timeout=240)
    assert (told.returncode, told.stdout) == (0, shown + "\n")
    assert all(f"\n{name}: " in shown for name in CATALOGUE)


@pytest.mark.parametrize("case", LOGS, ids=lambda case: case["case"])
def test_the_log_of_nccl_tells_the_network(case: dict[str, Any]) -> None:
    events = [event for event in map(parse, case["log"]) if event is not None]
    proof = from_nccl_log(events, case["intended"], case["plugin"], ["eth0", "eth1"])
    assert proof.finding == case["finding"]
    assert case["reason"] in proof.reason
    assert bool(proof.reason) is (case["finding"] != "proven")
    assert json.loads(json.dumps(proof.as_evidence()))["used"] == case["used"]


def core(*nics: tuple[str, int]) -> dict[str, Any]:
    return {"nics": [{"name": name, "tx_bytes": count, "rx_bytes": count} for name, count in nics]}


def test_the_core_tells_its_nics() -> None:
    nics = ["eth0", "eth1"]
    short = from_core([core(("eth0", 5), ("eth1", 0)), None], [nics, nics])
    assert (short.finding, short.used) == ("proven", ("eth0",))
    assert from_core([None, None], [nics, nics]).finding == "unknown"
    assert from_core([core(("eth0", 0), ("eth1", 0))], [nics]).finding == "unknown"
    assert from_core([core(("eth0", 5)), core(("ens1", 5))], [["eth0"], ["ens1"]]).finding == "proven"
    fewer = from_core([core(("eth0", 5), ("eth1", 5)), core(("eth0", 5))], [nics, nics])
    assert fewer.finding == "another" and fewer.reason == "the ranks left out eth1 of eth0, eth1"
    strange = from_core([core(("eth0", 5)), core(("mgmt0", 5))], [nics, nics])
    assert strange.finding == "another" and strange.reason == "the ranks used mgmt0, not eth0, eth1"


def test_the_counters_tell_where_the_bytes_went() -> None:
    samples = {
        host: [Sample(t, nic, 0, 1000 + t * each, True) for t in (0, 10) for nic, each in (("eth0", 99), ("eth1", 1))]
        for host in ("host0", "host1")
    }
    sent = sent_bytes(samples)
    assert sent == {"eth0": 1980, "eth1": 20}
    assert from_counters(sent, ["eth0", "eth1"], 2000).used == ("eth0", "eth1")
    assert from_counters(sent, ["eth0", "eth1"], 5000).finding == "another"
    assert from_counters({}, ["eth0"], 1).finding == "unknown"
    short = from_counters(sent, ["eth0", "eth1"], 5000, "requests")
    assert short.reason == "the NICs eth0, eth1 sent 2000 bytes where the requests need 5000"


def served(ends_ms: Sequence[int]) -> RankRecord:
    """A rank that finished requests at these times, the first of them a warm-up."""
    record = RankRecord(0, core=core(("eth0", 9)))
    for number, end_ms in enumerate(ends_ms, start=-1):
        record.finished[number] = Timed((end_ms - 5) * 1_000_000, 5_000_000, None)
    return record


@pytest.mark.parametrize(
    ("use", "sent", "finding"),
    [
        ("recompute", 6000, "proven"),
        ("recompute", 2500, "unknown"),
        # It answers the last three by itself, and still has to send what it answered before.
        ("reroute", 2500, "proven"),
        ("reroute", 900, "unknown"),
    ],
)
def test_a_system_that_goes_on_alone_needs_the_network_until_the_loss(use: str, sent: int, finding: str) -> None:
    workload = {"kind": "serving", "requests": 5}
    experiment = Experiment.model_validate({
        "schema": 1, "name": "x", "cluster": {"kind": "local", "hosts": 2, "nics": 1}, "workload": workload,
        "system": [{"use": use}], "fault": [{"kind": "nic_down", "host": "host1", "rail": 0, "at_iteration": 2}],
        "sweep": {"repeats": 1, "healthy": "off"},
    })  # fmt: skip
    (trial,) = plan(experiment)
    cache = experiment.workload.all_bytes(0, 2)
    ranks = [served([10, 20, 30, 60, 70, 80])] * 2
    fault = Injected("nic_down", "host1", "eth0", 40_000_000, 41_000_000, None)
    facts = Facts(ranks, 5, "ok", True, (fault,))
    hosts = [SimpleNamespace(name=name, nics=[SimpleNamespace(name="eth0")]) for name in ("host0", "host1")]
    testbed = HostTestbed(experiment, cast(list[Host], hosts))
    end_ns = 90_000_000
    samples = {"host0": [Sample(t * end_ns, "eth0", 0, round(t * sent / 1000 * cache), True) for t in (0, 1)]}
    assert network_of(testbed, trial, facts, samples).finding == finding


def test_iterations_after_the_last_count_of_the_nics_are_no_other_network() -> None:
    """Ranks that were ready right after they were given up ran some: "the NICs sent 0 bytes", a trial that failed."""
    experiment = Experiment.model_validate({
        "schema": 1, "name": "x", "cluster": {"kind": "local", "hosts": 2, "nics": 1}, "system": [{"use": "gloo"}],
        "workload": {"collective": "broadcast", "sizes": ["1MiB"]}, "sweep": {"repeats": 1},
    })  # fmt: skip
    (trial,) = plan(experiment)
    hosts = [SimpleNamespace(name=name, nics=[SimpleNamespace(name="eth0")]) for name in ("host0", "host1")]
    testbed = HostTestbed(experiment, cast(list[Host], hosts))
    facts = Facts([served([10, 20, 30])] * 2, 5, "ok", cut_off="not ready after 20 s")
    for until_ns, finding in ((9_000_000, "unknown"), (10_000_000, "another"), (40_000_000, "another")):
        samples = {host.name: [Sample(t_ns, "eth0", 0, 7, True) for t_ns in (0, until_ns)] for host in hosts}
        assert network_of(testbed, trial, facts, samples).finding == finding


ANOTHER, UNKNOWN, PROVEN = (Proof(finding, "why") for finding in ("another", "unknown", "proven"))


@pytest.mark.parametrize(
    ("status", "expected", "proof", "after"),
    [
        ("ok", True, PROVEN, ("ok", True)),
        ("ok", True, ANOTHER, ("failed", False)),
        ("ok", True, UNKNOWN, ("inconclusive", False)),
        ("failed", True, ANOTHER, ("failed", False)),
        ("failed", True, UNKNOWN, ("inconclusive", False)),
        ("failed", False, UNKNOWN, ("failed", False)),
        ("inconclusive", False, ANOTHER, ("failed", False)),
        ("wrong", False, ANOTHER, ("wrong", False)),
        ("ok", True, NOT_ASKED, ("ok", True)),
    ],
)
def test_another_network_is_a_failed_trial_and_an_unknown_one_is_none(
    status: Any, expected: bool, proof: Proof, after: tuple[str, bool]
) -> None:
    judgement = with_network(Judgement(status, expected, "", Evidence(), None), proof)
    assert (judgement.status, judgement.expected) == after
    assert (judgement.reason == "why") is (after != (status, expected) or (status, proof) == ("failed", ANOTHER))
    told = judgement.evidence.model_dump().get("network")
    assert told is None if proof is NOT_ASKED else told["finding"] == proof.finding
