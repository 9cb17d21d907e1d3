"""The transport in network namespaces under failures that only a real network shows, every element checked."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rails import Job, Rails, job, rails, until

from harness.cluster import rights

pytestmark = [
    pytest.mark.netns,
    pytest.mark.slow,
    pytest.mark.skipif(not rights.have(), reason="needs the right to make network namespaces"),
]


def lost(running: Job) -> list[dict[str, object]]:
    return [event for rank in range(len(running.ranks)) for event in running.events(rank, "path_down")]


@pytest.mark.parametrize("percent", [1, 5])
def test_losses_cost_speed_and_no_path(tmp_path: Path, percent: int) -> None:
    """A NIC that loses 1 to 5 % of what it carries gets less, for moments perhaps nothing, and is not given up."""
    with rails(2, 2) as network, job(network, tmp_path) as running:
        network.drop(1, 1, percent / 100)
        running.moves()
        before = [running.moved(0, nic) for nic in range(2)]
        time.sleep(2)
        after = [running.moved(0, nic) for nic in range(2)]
        assert lost(running) == [], running.output()
        lossy, well = after[1] - before[1], after[0] - before[0]
        assert percent < 5 or lossy < well  # 1 % hardly shows at this rate


def verdicts(running: Job, rank: int, nic: str, peer: str) -> list[str]:
    """The verdicts of a rank on its NIC and the peer's address, in their order."""
    return [
        str(event["detail"]).partition(":")[0]
        for event in running.events(rank, "verdict")
        if (event["nic"], event["peer"]) == (nic, peer)
    ]


def await_verdict(running: Job, rank: int, peer: str, expected: str) -> None:
    until(lambda: expected in verdicts(running, rank, "eth1", peer), running.output)


@pytest.fixture(scope="module")
def three() -> Iterator[Rails]:
    with rails(3, 2) as network:
        yield network


def test_a_dead_nic_is_told_from_the_peers_and_from_the_link(three: Rails, tmp_path: Path) -> None:
    """Three hosts, and the cable of one NIC is dead in the switch: no kernel sees it. Every pair agrees whose it is."""
    with job(three, tmp_path) as running:
        three.unplug_from_rail(1, 1)
        dead, others = three.address(1, 1), (0, 2)
        for host in others:
            await_verdict(running, 1, three.address(host, 1), "local_nic")
            await_verdict(running, host, dead, "remote_nic")
        running.moves()
        standing = [v for v in running.status(0)["verdicts"] if v["standing"]]
        assert [(v["nic"], v["peer"], v["verdict"]) for v in standing] == [("eth1", dead, "remote_nic")]
        three.plug_into_rail(1, 1)
        until(lambda: all(nic["state"] == "up" for nic in running.status(0)["nics"]), running.output)
        until(lambda: not any(v["standing"] for v in running.status(0)["verdicts"]), running.output)


def test_a_dead_link_between_two_nics_that_work(three: Rails, tmp_path: Path) -> None:
    with job(three, tmp_path) as running:
        three.cut_between(0, 1, 1)
        try:
            await_verdict(running, 0, three.address(1, 1), "link")
            await_verdict(running, 1, three.address(0, 1), "link")
            running.moves()
        finally:
            three.heal(0, 1)


def test_a_link_that_is_down_needs_no_questions(three: Rails, tmp_path: Path) -> None:
    with job(three, tmp_path, R2CC_LOCATE_MS="0") as running:
        three.port(1, 1, "down")
        try:
            await_verdict(running, 1, three.address(0, 1), "local_nic")
            await_verdict(running, 0, three.address(1, 1), "remote_nic")
            running.moves()
        finally:
            three.port(1, 1, "up")


def test_two_hosts_know_that_they_do_not_know(tmp_path: Path) -> None:
    with rails(2, 2) as network, job(network, tmp_path) as running:
        network.drop(1, 1)
        await_verdict(running, 0, network.address(1, 1), "unknown")
        await_verdict(running, 1, network.address(0, 1), "unknown")
        assert "no third host was there to ask" in running.output()


@pytest.fixture(scope="module")
def two() -> Iterator[Rails]:
    with rails(2, 3) as network:
        yield network


def await_all_up(running: Job) -> None:
    def all_up() -> bool:
        return all(nic["state"] == "up" for rank in range(2) for nic in running.status(rank)["nics"])

    until(all_up, running.output)


def goes_on_without_and_takes_back(network: Rails, running: Job) -> None:
    """NIC 1 of host 1, which has just been broken."""
    until(lambda: bool(lost(running)), running.output)
    running.moves()
    network.heal(1, 1)
    await_all_up(running)
    running.moves()


@pytest.mark.parametrize("directions", ["out", "in"])
def test_a_black_hole_in_each_direction(two: Rails, tmp_path: Path, directions: str) -> None:
    with job(two, tmp_path) as running:
        two.drop(1, 1, directions=directions)
        goes_on_without_and_takes_back(two, running)


def test_a_way_that_only_small_packets_pass(two: Rails, tmp_path: Path) -> None:
    """PINGs and their answers get through and excuse nothing: what is missing never arrives."""
    with job(two, tmp_path) as running:
        running.moves()
        two.narrow(1, 1, 400)
        goes_on_without_and_takes_back(two, running)


@pytest.mark.parametrize("sickness", ["drops large packets", "loses half"])
def test_a_sick_nic_costs_no_more_than_a_dead_one(two: Rails, tmp_path: Path, sickness: str) -> None:
    """Its greetings pass. It carries nothing until full-size packets do, whichever connection found out."""
    with job(two, tmp_path) as running:
        running.moves()
        if sickness == "loses half":
            two.drop(1, 1, 0.5)
        else:
            two.narrow(1, 1, 1000)

        def carried_in_a_while() -> int:
            before = sum(running.moved(0, nic) for nic in range(2))
            time.sleep(1.5)
            return sum(running.moved(0, nic) for nic in range(2)) - before

        time.sleep(0.3)
        sick = carried_in_a_while()
        two.port(1, 1, "down")
        time.sleep(0.3)
        dead = carried_in_a_while()
        assert sick > 0.6 * dead, f"{sick} and {dead} bytes\n" + running.output()
        two.heal(1, 1)
        two.port(1, 1, "up")
        before = running.moved(0, 1)
        until(lambda: running.moved(0, 1) > before + (4 << 20), running.output)


def test_a_stream_is_silent_and_its_nics_are_not(two: Rails, tmp_path: Path) -> None:
    """They answer beside it, so its kernel gets time to repeat what was lost: eight of its time-outs, not 80 ms."""
    with job(two, tmp_path) as running:
        running.moves()
        two.break_streams(1, 1)

        def silences_ms() -> list[int]:
            details = [str(event["detail"]) for event in lost(running)]
            return [int(detail.split()[-2]) for detail in details if detail.startswith("stalled")]

        until(lambda: bool(silences_ms()), running.output)
        assert min(silences_ms()) >= 400, running.output()
        goes_on_without_and_takes_back(two, running)


def test_failures_on_both_ends_at_once(two: Rails, tmp_path: Path) -> None:
    """Different NICs, so that a single one is left."""
    with job(two, tmp_path) as running:
        two.port(0, 0, "down")
        two.drop(1, 1)
        until(lambda: {event["nic"] for event in lost(running)} >= {"eth0", "eth1"}, running.output)
        running.moves()
        two.port(0, 0, "up")
        two.heal(1, 1)
        await_all_up(running)


def test_a_second_failure_while_the_first_is_repaired(two: Rails, tmp_path: Path) -> None:
    """As soon as a NIC is back the next goes, down to the last, all round."""
    with job(two, tmp_path) as running:
        two.drop(1, 0)
        until(lambda: bool(lost(running)), running.output)
        for gone, back in ((1, 0), (2, 1), (0, 2)):
            two.drop(1, gone)
            two.heal(1, back)
            running.moves(2 << 20)
        two.heal(1, 0)
        await_all_up(running)


@pytest.mark.parametrize("how", ["silent", "carrier"])
def test_all_nics_of_a_host_gone_for_a_while(two: Rails, tmp_path: Path, how: str) -> None:
    with job(two, tmp_path) as running:
        for nic in range(3):
            two.drop(1, nic) if how == "silent" else two.port(1, nic, "down")
        until(lambda: all(nic["paths_up"] == 0 for nic in running.status(0)["nics"]), running.output)
        for nic in range(3):
            two.heal(1, nic) if how == "silent" else two.port(1, nic, "up")
        await_all_up(running)
        running.moves()


@pytest.mark.parametrize("how", ["silent", "carrier"])
def test_hosts_that_share_no_rail_talk_where_the_network_routes_between_rails(tmp_path: Path, how: str) -> None:
    with rails(2, 2) as network:
        network.route()
        with job(network, tmp_path) as running:
            for host in range(2):
                network.drop(host, host) if how == "silent" else network.port(host, host, "down")
            until(lambda: all(running.events(rank, "path_detour") for rank in range(2)), running.output)
            running.moves()
            for host in range(2):
                network.heal(host, host) if how == "silent" else network.port(host, host, "up")
            await_all_up(running)
            running.moves()
            until(lambda: any("own rail" in str(e["detail"]) for e in running.events(0, "path_down")), running.output)
            before = [[running.moved(rank, nic) for nic in range(2)] for rank in range(2)]
            until(
                lambda: all(
                    running.moved(rank, nic) > before[rank][nic] + (1 << 20) for rank in range(2) for nic in range(2)
                ),
                running.output,
            )


def test_a_nic_that_flaps_is_held_back_and_taken_back_later(two: Rails, tmp_path: Path) -> None:
    with job(two, tmp_path, R2CC_FLAP_HALF_LIFE_MS="4000") as running:

        def held() -> bool:
            return any(event["cause"] == "flapping" for event in running.events(0, "path_held"))

        # Each rank sends over one connection and receives over another; the sending end holds back.
        for _ in range(6):
            two.port(1, 2, "down")
            until(lambda: running.status(0)["nics"][2]["state"] == "down", running.output)
            two.port(1, 2, "up")
            # Its own path, too, and not only the other rank's: what is down cannot be lost.
            until(lambda: held() or running.status(0)["nics"][2]["state"] == "up", running.output)
            if held():
                break
        until(held, running.output)
        why = {("lost too often" in str(e["detail"]), e["cause"]) for e in running.events(0, "path_held")}
        assert why <= {(True, "flapping"), (False, "probation")}, why
        running.moves()
        await_all_up(running)
        assert any("stayed up long enough" in str(e["detail"]) for e in running.events(0, "path_returned"))


def test_a_nic_slowed_to_a_tenth_is_kept_and_gets_less(two: Rails, tmp_path: Path) -> None:
    with job(two, tmp_path) as running:
        two.rate(1, 1, "40mbit")
        try:
            running.moves()
            before = [running.moved(0, nic) for nic in range(3)]
            running.moves(24 << 20)
            gained = [running.moved(0, nic) - before[nic] for nic in range(3)]
            assert lost(running) == [], running.output()
            assert gained[1] < gained[0] / 2
        finally:
            two.rate(1, 1, "400mbit")
