"""What a rank that trains leaves for its next life, and how the stats of its groups become one; without hosts."""

import asyncio
import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.backends.core_stats import together
from harness.backends.nics_left import answers
from harness.backends.training_life import EVERY, LIVES, STATE, Life


class Trainer:
    """What `Life` asks of one that keeps nothing."""

    def agree(self, step: int) -> int:
        return step


def environ(folder: Path) -> dict[str, str]:
    paths = [folder / name for name in ("notes", "even", "odd")]
    for path in paths:
        path.touch()
    return {STATE: ":".join(map(str, paths)), EVERY: "1000", LIVES: "2"}


def test_without_an_agent_there_is_one_life() -> None:
    life = Life.of({})
    assert life.attempt == 0 and not life.will_go_on() and life.resume(Trainer(), -2) == -2
    assert [life.begin(step).kind for step in (-2, -1, 0)] == ["new"] * 3


def test_a_second_life_knows_the_step_that_was_hit(tmp_path: Path) -> None:
    env = environ(tmp_path)
    first = Life.of(env)
    assert first.will_go_on()
    first.resume(Trainer(), -1)
    begun = [first.begin(step) for step in (-1, 0, 1, 2)]
    first.failed()
    second = Life.of(env)
    assert second.attempt == 1 and not second.will_go_on()
    assert second.resume(Trainer(), -1) == -1
    kinds = [second.begin(step) for step in (-1, 0, 1, 2, 3)]
    assert [one.kind for one in kinds] == ["again", "again", "again", "hit", "new"]
    assert kinds[3].t_ns == begun[3].t_ns, "the time that the hit step was begun at first"
    costs = second.costs()
    assert costs["steps_again"] == 3 and set(costs) == {
        "reload_ms", "steps_again", "failed_after_ms", "restart_ms", "redo_ms",
    }  # fmt: skip
    assert all(value >= 0 for value in costs.values())


def test_a_life_that_was_killed_says_nothing_of_when(tmp_path: Path) -> None:
    env = environ(tmp_path)
    Life.of(env).begin(0)
    second = Life.of(env)
    second.resume(Trainer(), -1)
    assert second.begin(0).kind == "hit" and "failed_after_ms" not in second.costs()


def test_a_checkpoint_is_read_back_as_it_was(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install torch)")

    class Learner(Trainer):
        def __init__(self) -> None:
            self.model = torch.nn.Linear(3, 2)
            self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1)

        def learn(self) -> None:
            self.optimizer.zero_grad()
            self.model(torch.ones(1, 3)).sum().backward()
            self.optimizer.step()

        def bits(self) -> Any:
            return [p.detach().clone() for p in self.model.parameters()]

    env = environ(tmp_path) | {EVERY: "2"}
    life, learner = Life.of(env), Learner()
    for step in range(6):
        life.begin(step)
        learner.learn()
        life.ended(learner, step)
        if step == 3:
            (tmp_path / "slots").write_bytes((tmp_path / "notes").read_bytes())
    expected = learner.bits()
    # The last checkpoint is torn: the one before it counts, and the steps since then give the same bits.
    (tmp_path / "notes").write_bytes((tmp_path / "slots").read_bytes())
    again, other = Life.of(env), Learner()
    assert again.resume(other, 0) == 4
    for _ in range(2):
        other.learn()
    assert all(torch.equal(a, b) for a, b in zip(expected, other.bits(), strict=True))


NICS = """
set -e
ip link set lo up
ip link add works0 type veth peer name works1
ip link add alone0 type veth peer name alone1
ip link add down0 type veth peer name down1
ip link set alone1 up arp off
for at in works0/1 works1/2 alone0/3 down0/4; do ip address add 192.0.2.${at#*/}/32 dev ${at%/*}; done
for name in works0 works1 alone0; do ip link set $name up; done
for name in works0 works1; do echo 1 > /proc/sys/net/ipv4/conf/$name/accept_local; done
for name in all works0 works1; do echo 0 > /proc/sys/net/ipv4/conf/$name/rp_filter; done
ip route add 192.0.2.2 dev works0
ip route add 192.0.2.1 dev works1
# The kernel tells that a link is up some time after it came.
for name in works0 works1 alone0; do until ip -o link show $name | grep -q 'state UP'; do sleep 0.02; done; done
exec "$0" -c "$1"
"""
RESTARTS = """
import json, threading
from harness.backends.nics_left import leave_out_dead

class Store(dict):
    def __init__(self):
        self.changed = threading.Condition()
    def set(self, key, value):
        with self.changed:
            self[key] = value
            self.changed.notify_all()
    def get(self, key):
        with self.changed:
            self.changed.wait_for(lambda: key in self)
            return self[key].encode()

def restart(*lists):
    store, environs = Store(), [{"R2CC_SOCKET_IFNAME": one} for one in lists]
    removed = [None] * len(lists)
    def rank(i):
        removed[i] = leave_out_dead(store, i, len(lists), environs[i])
    threads = [threading.Thread(target=rank, args=(i,)) for i in range(len(lists))]
    [one.start() for one in threads]
    [one.join() for one in threads]
    print(json.dumps([removed, [one["R2CC_SOCKET_IFNAME"] for one in environs]]))

restart("=works0,alone0,down0", "=works1")   # alone0 has a carrier, and reaches nobody
restart("=works0,alone0", "=works1", "=down0")  # no NIC reaches both others
restart("=alone0,down0", "=works1")          # no list would be better than this one: it is left as it is
restart("works", "lo@127.0.0.1")             # not exact names
"""


def in_a_namespace(nics: str, restarts: str) -> list[Any]:
    argv = ["unshare", "--map-root-user", "--net", "--mount", "sh", "-c", nics, sys.executable, restarts]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=240)
    if "unshare" in done.stderr:
        pytest.skip(f"no network namespace can be made here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_job_is_started_again_with_the_nics_that_reach_a_peer() -> None:
    assert in_a_namespace(NICS, RESTARTS) == [
        [[["alone0", "down0"], []], ["=works0", "=works1"]],
        [[[], [], []], ["=works0,alone0", "=works1", "=down0"]],
        [[[], []], ["=alone0,down0", "=works1"]],
        [[[], []], ["works", "lo@127.0.0.1"]],
    ]


SWITCH = """
set -e
ip link set lo up
ip link add switch type bridge
ip link set switch up
at=1
for name in a0 a1 a2 a3 a4 a5 b0 alone0; do
    ip link add $name type veth peer name $name-port
    if [ $name != alone0 ]; then ip link set $name-port master switch; else ip link set $name-port arp off; fi
    ip address add 192.0.2.$at/32 dev $name
    at=$((at + 1))
    ip link set $name up
    ip link set $name-port up
    echo 1 > /proc/sys/net/ipv4/conf/$name/accept_local
    echo 1 > /proc/sys/net/ipv4/conf/$name/arp_ignore
    echo 0 > /proc/sys/net/ipv4/conf/$name/rp_filter
done
echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter
for name in a0 a1 a2 a3 a4 a5 b0 alone0; do
    until ip -o link show $name | grep -q 'state UP'; do sleep 0.02; done
done
exec "$0" -c "$1"
"""


def test_as_many_nics_as_a_host_has_reach_one_nic_of_a_peer() -> None:
    # alone0 keeps rank 1 looking, and so its listeners open, until nobody waits for an answer any more.
    restart = RESTARTS.partition("\nrestart(")[0] + '\nrestart("=a0,a1,a2,a3,a4,a5", "=b0,alone0")'
    assert in_a_namespace(SWITCH, restart) == [[[[], ["alone0"]], ["=a0,a1,a2,a3,a4,a5", "=b0"]]]


def test_a_peer_that_ends_the_connection_at_once_has_answered() -> None:
    async def ended_at_once() -> bool:
        with socket.create_server(("127.0.0.1", 0)) as server:
            asked = asyncio.create_task(answers(("lo", "127.0.0.1"), server.getsockname()))
            await asyncio.sleep(0)  # it connects
        return await asked

    assert asyncio.run(ended_at_once())


def test_the_groups_of_a_rank_are_told_as_one() -> None:
    def stats(name: str, sent: int, at: int) -> dict[str, Any]:
        nics = [{"name": "eth0", "tx_bytes": sent, "state": name}]
        return {"nics": nics, "events": [{"t_ns": at}], "replayed_chunks": 1, "duplicate_chunks": 2, "algo": name}

    assert together([stats("a", 5, 9), stats("b", 7, 3)]) == {
        "nics": [{"name": "eth0", "tx_bytes": 12, "state": "a"}],
        "events": [{"t_ns": 3}, {"t_ns": 9}],
        "replayed_chunks": 2,
        "duplicate_chunks": 4,
        "algo": "a",
    }
