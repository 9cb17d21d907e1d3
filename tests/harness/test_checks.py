"""What a check makes of what it saw: made-up hosts, each with one thing wrong."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from link_facts import links

from harness.cluster.checks.evidence import Evidence, probes
from harness.cluster.checks.finding import Finding, Severity, merged
from harness.cluster.find_nics import look_up
from harness.cluster.gather import Probe, Reached, Remains, Surveyed
from harness.cluster.inventory import Inventory
from harness.commands.cluster_check import document, judge
from harness.errors import HostError
from harness.hosts.links import Links

CAREFUL = {"arp_ignore": 1, "arp_announce": 2, "rp_filter": 0}
HEALTHY: dict[str, Any] = {
    "kernel": "6.8",
    "rights": {"net_admin": True, "memlock_bytes": None},
    "memory": {"available_bytes": 64 << 30, "shm_bytes": 32 << 30},
    "programs": {"ip": "/sbin/ip", "tc": "/sbin/tc", "unshare": "/bin/unshare"},
    "nics": {"eth0": {"speed_bit_s": 25_000_000_000}, "eth1": {"speed_bit_s": 25_000_000_000}},
    "sysctls": {"all": CAREFUL},
    "congestion_control": "cubic",
    "features": dict.fromkeys(("delay", "loss", "rate_limit")),
    "gpus": {
        "source": "pynvml",
        "missing": None,
        "count": 2,
        "names": ["H", "H"],
        "driver": "550",
        "driver_loaded": True,
    },
    "rdma": {
        "source": "pyverbs",
        "missing": None,
        "lacks": [],
        "ports": [
            {
                "device": "mlx5_0",
                "port": 1,
                "state": "ACTIVE",
                "physical_state": "LinkUp",
                "verbs": "ACTIVE",
                "active_mtu": 4096,
                "max_mtu": 4096,
                "link_layer": "Ethernet",
                "netdev": "eth0",
                "gids": [],
                "counts_bytes": True,
            }
        ],
    },
    "nccl": [{"path": "/usr/lib/libnccl.so.2", "version": "2.28.9"}],
    "package": {"version": "0.1.0", "plugin": "/p.so", "plugin_digest": "abc"},
}


def gids_of(number: int, first: int = 0, kind: str = "RoCE v2") -> list[dict[str, Any]]:
    """A table of which each address takes two entries, as on cards that do RoCE v1 as well."""
    mapped = f"0000:0000:0000:0000:0000:ffff:0a00:000{number}"
    local = f"fe80:0000:0000:0000:0e42:a1ff:fe00:0{number}01"
    kinds = ((local, "IB/RoCE v1"), (local, "RoCE v2"), (mapped, "IB/RoCE v1"), (mapped, kind))
    return [{"index": first + i, "gid": gid, "type": told, "netdev": "eth0"} for i, (gid, told) in enumerate(kinds)]


def links_of(number: int) -> Links:
    named = {"eno1": f"192.0.2.{number}/24", "eth0": f"10.0.0.{number}/24", "eth1": f"10.0.1.{number}/24"}
    listed = {
        name: {"mtu": 9000, "mac": f"0c:42:a1:00:0{number}:0{i}", "addresses": [address]}
        for i, (name, address) in enumerate(named.items())
    }
    session = {"local": f"192.0.2.{number}", "peer": "192.0.2.99"}
    return links(listed, session=session, default_routes=["eno1"], reply_route="eno1")


def healthy() -> Evidence:
    """Three hosts on two rails with nothing wrong."""
    hosts = [
        {
            "name": f"n{i}",
            "address": f"192.0.2.{i}",
            "gpus": 2,
            "nics": [
                {"rail": 0, "name": "eth0", "rdma": "mlx5_0"},
                {"rail": 1, "name": "eth1", "rate": "25 Gbit/s"},
            ],
        }
        for i in (1, 2, 3)
    ]
    inventory = Inventory.model_validate({"schema": 1, "host": hosts})
    surveys = {f"n{i}": Surveyed(deepcopy(HEALTHY), links_of(i), f"192.0.2.{i}", 1e-5, 1e-4) for i in (1, 2, 3)}
    for i, survey in enumerate(surveys.values(), start=1):
        survey.facts["rdma"]["ports"][0]["gids"] = gids_of(i)
    return answered(Evidence(inventory, surveys))


def answered(seen: Evidence) -> Evidence:
    """With its NICs looked up, and every probe answered as on separate rails."""
    looked = {host.name: look_up(host, seen.surveys[host.name].links) for host in seen.inventory.hosts}
    seen = replace(
        seen,
        nics={name: nics for name, (nics, _) in looked.items()},
        wrong_nics={name: wrong for name, (_, wrong) in looked.items()},
    )
    return replace(seen, answers={probe: usual_answer(probe) for probe in probes(seen)})


def usual_answer(probe: Probe) -> Reached:
    same = probe.source.nic == probe.target.nic
    return Reached(probe.target.nic, 80) if same else Reached(None, None, "no answer")


def told(seen: Evidence) -> list[str]:
    """Everything that is not well, as one text each."""
    return [f"{f.severity} {f.topic} {f.host}: {f.what}" for f in judge(seen) if f.severity is not Severity.OK]


def with_facts(topic: str, **facts: Any) -> Evidence:
    seen = healthy()
    known = seen.surveys["n2"].facts
    changed = {**known, topic: {**known[topic], **facts}}
    return replace(seen, surveys={**seen.surveys, "n2": replace(seen.surveys["n2"], facts=changed)})


def with_port(**facts: Any) -> Evidence:
    """One whose RDMA port says these things."""
    return with_facts("rdma", ports=[HEALTHY["rdma"]["ports"][0] | {"gids": gids_of(2)} | facts])


def with_congestion_control(name: str) -> Evidence:
    seen = healthy()
    survey = seen.surveys["n2"]
    changed = replace(survey, facts={**survey.facts, "congestion_control": name})
    return replace(seen, surveys={**seen.surveys, "n2": changed})


def with_link(nic: str, **fields: Any) -> Evidence:
    seen = healthy()
    links = seen.surveys["n2"].links
    by_name = {**links.by_name, nic: replace(links.by_name[nic], **fields)}
    survey = replace(seen.surveys["n2"], links=replace(links, by_name=by_name))
    return answered(replace(seen, surveys={**seen.surveys, "n2": survey}))


def with_answers(change: Callable[[Probe], Reached | None]) -> Evidence:
    seen = healthy()
    return replace(seen, answers={probe: change(probe) or answer for probe, answer in seen.answers.items()})


def test_healthy_hosts_have_no_complaints() -> None:
    assert told(healthy()) == []
    assert {f.topic for f in judge(healthy())} >= {"reached", "clock", "nics", "rails", "arp", "gpus", "rdma", "nccl"}


SILENT = Reached(None, None, "no answer")


def hosts_of(probe: Probe) -> set[str]:
    return {probe.source.host, probe.target.host}


@pytest.mark.parametrize(
    ("seen", "lines"),
    [
        (with_facts("rights", net_admin=False), ["error rights n2: may not change interfaces"]),
        (with_facts("rights", memlock_bytes=8 << 20), ["warning rights n2: may lock 8MiB of memory only"]),
        (with_facts("memory", available_bytes=1 << 30), ["warning memory n2: 1.0 GiB of memory are free"]),
        (with_facts("memory", available_bytes=1 << 20), ["error memory n2: 0.0 GiB of memory are free"]),
        (with_facts("memory", shm_bytes=64 << 20), ["warning memory n2: /dev/shm takes 64 MiB only"]),
        (with_facts("programs", ip=None), ["error programs n2: has no 'ip', which flap, "]),
        (with_facts("programs", tc=None), ["warning programs n2: has no 'tc', which blackhole, "]),
        (with_facts("features", delay="unknown"), ["warning kernel n2: its kernel cannot make delay (unknown)"]),
        (
            replace(with_facts("features", delay="unknown"), faults=frozenset({"delay"})),
            ["error kernel n2: its kernel cannot make delay (unknown)"],
        ),
        (with_facts("features", loss="not tried: no x"), ["note kernel n2: faults of loss: not tried: no x"]),
        (with_facts("features", failed="OSError: x"), ["warning features n2: could not be examined: OSError: x"]),
        (with_facts("gpus", count=1, names=["H"]), ["error gpus n2: shows 1 GPUs, the inventory says 2"]),
        (with_facts("gpus", count=0, names=[], why="x"), ["error gpus n2: has an NVIDIA driver and shows no GPU: x"]),
        (with_facts("gpus", driver="535"), ["warning gpus : hosts differ in NVIDIA driver: n1 550; n2 535; n3 550"]),
        (with_facts("gpus", missing="pynvml"), ["warning gpus n2: its Python has no pynvml"]),
        (with_facts("rdma", missing="pyverbs"), ["note rdma n2: its Python has no pyverbs"]),
        (with_facts("rdma", ports=[]), ["error rdma n2: has no RDMA device mlx5_0"]),
        (
            with_facts("rdma", ports=[], lacks=["ib_uverbs", "rdma_rxe"]),
            ["error rdma n2: has no RDMA device mlx5_0, and its kernel no ib_uverbs"],
        ),
        (
            with_port(state="DOWN", verbs="1", physical_state="Disabled"),
            ["error rdma n2: port 1 of mlx5_0 is DOWN (Disabled)"],
        ),
        (
            with_port(verbs="Failed to open device"),
            ["error rdma n2: programs cannot use port 1 of mlx5_0: Failed to open device"],
        ),
        (with_port(netdev="eth7"), ["error rdma n2: mlx5_0 sends over eth7, the inventory says eth0"]),
        (
            with_port(gids=gids_of(2, kind="IB/RoCE v1")),
            ["error rdma n2: mlx5_0 has no RoCE v2 GID for 10.0.0.2"],
        ),
        (with_port(gids=gids_of(3)), ["error rdma n2: mlx5_0 has no RoCE v2 GID for 10.0.0.2"]),
        (
            with_port(gids=gids_of(2, first=2)),
            ["note rdma : rail0: RoCE v2 has different GID indexes: n1 3, n2 5, n3 3"],
        ),
        (
            with_port(link_layer="InfiniBand", gids=[]),
            ["error rdma : rail0: its RDMA ports have different link layers: n1 Ethernet, n2 InfiniBand, n3 Ethernet"],
        ),
        (
            with_port(active_mtu=1024),
            [
                "warning rdma : rail0: its RDMA ports have different MTUs: n1 4096, n2 1024, n3 4096",
                "note rdma n2: mlx5_0 sends 1024 bytes a packet, and could send 4096",
            ],
        ),
        (with_port(counts_bytes=False), ["note rdma n2: mlx5_0 counts packets and no bytes"]),
        (with_facts("package", version=None, why="No module"), ["error package n2: its Python has no r2ccl"]),
        (with_facts("package", version="0.2.0"), ["error package : hosts differ in r2ccl: n1 0.1.0; n2 0.2.0"]),
        (with_facts("package", plugin_digest="xyz"), ["warning package : hosts differ in plugin"]),
        (
            with_facts("nics", eth1={"speed_bit_s": 10_000_000_000}),
            ["warning speed n2: eth1 runs at 10 Gbit/s, the inventory says 25 Gbit/s"],
        ),
        (with_facts("nics", eth0={}), ["note speed n2: the speed of eth0 is not known"]),
        (with_facts("sysctls", all={**CAREFUL, "arp_ignore": 0}), ["warning arp n2: eth0, eth1 answer ARP"]),
        (with_facts("sysctls", all={**CAREFUL, "rp_filter": 1}), []),
        (
            with_congestion_control("bbr"),
            [
                "warning tcp n2: TCP's congestion control is bbr",
                "warning tcp : hosts differ in TCP's congestion control: n1 cubic; n2 bbr",
            ],
        ),
        (with_link("eth1", up=False), ["error nics n2: eth1 is down"]),
        (with_link("eth1", carrier=False), ["error nics n2: eth1 has no carrier"]),
        (with_link("eth1", addresses=()), ["error nics n2: rail 1: eth1 has no address"]),
        (
            with_link("eth1", addresses=("10.0.1.2/24", "10.0.9.2/24")),
            ["warning nics n2: eth1 has 2 IPv4 addresses, which count as so many NICs"],
        ),
        (with_link("eth1", addresses=("fd00::2/64",)), ["error nics n2: eth1 has no IPv4 address"]),
        (with_link("eth1", mtu=1500), ["warning mtu : rail1: its NICs have different MTUs: n1 9000, n2 1500, n3 9000"]),
        (
            with_answers(lambda p: SILENT if "n2" in hosts_of(p) and p.source.nic == "eth1" else None),
            ["error rails n2: rail1: eth1 (10.0.1.2) reaches nobody: no answer"],
        ),
        (
            with_answers(lambda p: SILENT if hosts_of(p) == {"n1", "n3"} and p.bound else None),
            [
                "error rails n1: rail0: eth0 (10.0.0.1) does not reach n3: no answer",
                "error rails n3: rail1: eth1 (10.0.1.3) does not reach n1: no answer",
                "error rails n3: rail0",
                "error rails n1: rail1",
            ],
        ),
        (
            with_answers(lambda p: SILENT if p.size and p.target.host == "n3" and p.source.nic == "eth0" else None),
            [f"error mtu {n}: rail0: packets of 9000 bytes from eth0 do not reach n3" for n in ("n1", "n2")],
        ),
        (
            with_answers(lambda p: Reached("eth0") if (p.target.host, p.target.nic) == ("n2", "eth1") else None),
            [
                "error rails n2: rail1: packets for eth1 arrive at eth0",
                "warning arp n2: takes packets for eth1 at eth0: it answers ARP for its other NICs",
            ],
        ),
        (
            with_answers(lambda p: Reached(p.target.nic)),
            ["note rails : NICs of different rails reach each other: rail0 to rail1, rail1 to rail0"],
        ),
        (
            with_answers(lambda p: SILENT if not p.bound and p.source.host == "n3" else None),
            ["error management n3: does not reach n1 at 192.0.2.1, where rank 0 will be met"],
        ),
    ],
)  # fmt: skip
def test_one_thing_wrong_is_what_is_told(seen: Evidence, lines: list[str]) -> None:
    found = told(seen)
    assert len(found) >= len(lines)
    for line in lines:
        assert any(text.startswith(line) for text in found), found
    unrelated = [text for text in found if not any(text.startswith(line) for line in lines)]
    follows = (
        "differ",
        "has 1 NICs",
        "reaches nobody",
        "rail1 has no other",
        "carries nothing else",
        "do not reach n2",
    )
    assert all(any(word in text for word in follows) for text in unrelated), unrelated


def test_what_earlier_faults_left_is_told_on_switches_too() -> None:
    left = {"n1": Remains(False, 2), "tor": Remains(True, 1), "n2": Remains(False, 0)}
    assert told(replace(healthy(), remains=left)) == [
        "error faults n1: 2 things that faults have made are still there",
        "warning faults tor: a sweep that is under way has armed a fault",
    ]


def test_every_complaint_has_a_remedy() -> None:
    for seen in (
        with_facts("features", delay="unknown"),
        with_link("eth1", up=False),
        with_answers(lambda p: SILENT),
        with_facts("sysctls", all={}),
    ):
        assert all(f.remedy for f in judge(seen) if f.severity in (Severity.WARNING, Severity.ERROR))


def test_clocks_are_judged_by_what_is_certain() -> None:
    seen = healthy()
    for offset_s, error_s, severity in (
        (0.004, 0.005, Severity.OK),
        (-0.004, 0.001, Severity.NOTE),
        (2.0, 0.001, Severity.WARNING),
    ):
        survey = replace(seen.surveys["n2"], clock_offset_s=offset_s, clock_error_s=error_s)
        found = judge(replace(seen, surveys={**seen.surveys, "n2": survey}))
        (clock,) = [f for f in found if f.topic == "clock" and f.host == "n2"]
        assert clock.severity is severity
    assert clock.what == "its clock is 2 s ahead of ours, known within 1 ms"


def test_arp_answers_for_others_are_an_error_where_nics_share_a_subnet() -> None:
    seen = with_link("eth1", addresses=("10.0.0.9/24",))
    survey = seen.surveys["n2"]
    facts = {**survey.facts, "sysctls": {"all": {**CAREFUL, "arp_announce": 0, "rp_filter": 1}}}
    found = told(replace(seen, surveys={**seen.surveys, "n2": replace(survey, facts=facts)}))
    assert any(
        line.startswith("error arp n2: eth0, eth1 answer ARP") and "two of its NICs lie in 10.0.0.0/24" in line
        for line in found
    )
    assert any(line.startswith("warning arp n2: eth0, eth1 drop what comes in by another NIC") for line in found)


def test_a_host_that_cannot_be_reached_leaves_the_others_to_be_judged() -> None:
    seen = healthy()
    surveys = {name: survey for name, survey in seen.surveys.items() if name != "n3"}
    nics = {name: found for name, found in seen.nics.items() if name != "n3"}
    seen = replace(
        seen, surveys=surveys, nics=nics, errors={"n3": HostError("n3", "n3: log-in refused; check the user")}
    )
    found = judge(seen)
    assert found[0] == Finding(Severity.ERROR, "reached", "n3", "n3: log-in refused", "check the user")
    assert {f.host for f in found} == {"", "n1", "n2", "n3"}


def test_the_document_says_it_all_to_machines() -> None:
    seen = with_facts("rights", net_admin=False)
    made = document(seen, judge(seen))
    assert made["counts"]["error"] == 1
    assert made["findings"][0]["topic"] == "rights"
    assert {"from": ["n1", "eth0"], "to": ["n2", "eth0"], "bytes": None, "arrived_on": "eth0"}.items() <= made["reach"][
        0
    ].items()


def test_what_is_said_of_several_hosts_is_said_once() -> None:
    found = [f for f in judge(healthy()) if f.topic == "reached"]
    assert [(finding.what, names) for finding, names in merged(found)] == [
        ("SSH and the agent answer", ["n1", "n2", "n3"])
    ]


def test_an_active_port_says_what_programs_have_to_know_of_it() -> None:
    (told,) = {f.what for f in judge(healthy()) if f.topic == "rdma"}
    assert told == "mlx5_0 on eth0: active, Ethernet, RoCE v2 by GID 3, MTU 4096"
