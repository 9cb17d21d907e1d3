"""Whether a trial used the intended network, and how that changes its judgement. Pure.

A trial that used another network failed, because its numbers belong to no system of the experiment. A trial that does
not show which network it used is inconclusive, if it would otherwise have counted. Wrong elements remain wrong. The
reports of ranks or NCCL's log are not enough: the NICs' counters must show the bytes as well.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf

from harness.events import RankRecord
from harness.hosts.base import Sample
from harness.sweep.carried import grown
from harness.sweep.judge import Facts, Judgement
from harness.sweep.plan import Trial
from harness.sweep.testbed import HostTestbed
from harness.systems.catalogue import CATALOGUE, needs_no_network
from harness.systems.network import NOT_ASKED, Proof, confirmed, from_core, from_counters, from_nccl_log


def network_of(testbed: HostTestbed, trial: Trial, facts: Facts, samples: Mapping[str, Sequence[Sample]]) -> Proof:
    """Which network `trial` used, as its backend proves it; hosts without NICs have none to prove."""
    nics = testbed.nic_names
    witness = testbed.backend(trial).witness
    if witness == "none" or not nics:
        return NOT_ASKED
    ranks, workload = facts.ranks, testbed.experiment.workload
    loss_ns = facts.fault.t_before_ns if facts.fault and needs_no_network(trial.system.env) else inf
    until_ns = min(loss_ns, _counted_until_ns(samples))
    least_bytes = certain(ranks, until_ns) * workload.all_bytes(trial.size_bytes, len(ranks))
    counted = from_counters(sent_bytes(samples), nics, least_bytes, workload.counts)
    if witness == "core":
        by_rank = [[nic.name for nic in host.nics] for host in testbed.hosts]
        return confirmed(from_core([record.core for record in ranks], by_rank), counted)
    if witness == "nccl_log":
        plugin = trial.system.use is not None and CATALOGUE[trial.system.use].path == "plugin"
        events = (event for record in ranks for _, event in record.nccl)
        return confirmed(from_nccl_log(events, trial.system.network, plugin, nics), counted)
    return counted


def nic_bytes(testbed: HostTestbed, trial: Trial) -> dict[str, float]:
    """By host, the bytes that each of its NICs carries in one iteration of `trial` that is spread evenly over them.

    Empty for a backend that moves no data; hosts without NICs are left out.
    """
    if testbed.backend(trial).witness == "none":
        return {}
    of_host = testbed.experiment.workload.host_bytes(trial.size_bytes, len(testbed.hosts))
    return {host.name: of_host / len(host.nics) for host in testbed.hosts if host.nics}


def with_network(judgement: Judgement, proof: Proof) -> Judgement:
    """The judgement after checking the network, which becomes part of its evidence."""
    if proof is NOT_ASKED:
        return judgement
    evidence = judgement.evidence.model_copy(update={"network": proof.as_evidence()})
    judgement = replace(judgement, evidence=evidence)
    if proof.finding == "another" and judgement.status != "wrong":
        return replace(judgement, status="failed", expected=False, reason=proof.reason)
    counts = judgement.status == "ok" or (judgement.status == "failed" and judgement.expected)
    if proof.finding == "unknown" and counts:
        return replace(judgement, status="inconclusive", expected=False, reason=proof.reason)
    return judgement


def sent_bytes(samples: Mapping[str, Sequence[Sample]]) -> dict[str, int]:
    """By NIC, the bytes sent on all hosts together from the first sample to the last."""
    sent: dict[str, int] = {}
    for taken in samples.values():
        for nic in dict.fromkeys(sample.nic for sample in taken):
            sent[nic] = sent.get(nic, 0) + grown([s.sent for s in taken if s.nic == nic and not s.is_gone])
    return sent


def _counted_until_ns(samples: Mapping[str, Sequence[Sample]]) -> float:
    """Until when the NICs of all hosts were counted. Ranks of a trial that was given up may go on after that."""
    return min((taken[-1].t_ns for taken in samples.values() if taken), default=inf)


def certain(ranks: Sequence[RankRecord], until_ns: float = inf) -> int:
    """How many iterations every rank finished by then, warm-up included, whose bytes must have crossed the network."""
    return min(sum(timed.end_ns <= until_ns for timed in record.finished.values()) for record in ranks)
