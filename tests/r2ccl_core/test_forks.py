"""A forked child (a data loader's worker, say) is not in its parent's group: neither its life nor its end counts."""

import subprocess
import sys
import time

import pytest

from r2ccl_core.control.rendezvous import free_root

CLOSES = """
import os, sys
from r2ccl_core.runtime.communicator import Communicator

comm = Communicator(int(sys.argv[1]), 2, root=sys.argv[2], nics=[("lo", f"127.{1 + int(sys.argv[1])}.0.1")])
comm.barrier()
ready, told = os.pipe()
if (child := os.fork()) == 0:
    os.read(ready, 1)
    os._exit(0)
comm.close()
os.write(told, b"!")  # as a program that ends its workers after the group
os.waitpid(child, 0)
"""

RANK = """
import os, signal, sys
import numpy as np
from r2ccl_core.runtime.communicator import Communicator
from r2ccl_core.errors import R2cclError

rank, root, what, algo = int(sys.argv[1]), *sys.argv[2:]
os.environ["R2CC_ALGO"] = algo
with Communicator(rank, 2, root=root, nics=[("lo", f"127.{1 + rank}.0.1")]) as comm:
    own = np.full(1 << 18, rank + 1, np.float32)
    comm.all_reduce(own)
    comm.barrier()
    if rank == 0 and (child := os.fork()) == 0:
        if what == "lives on":
            sys.stdin.read()
        try:
            comm.all_reduce(own)
        except R2cclError as error:
            print(error, flush=True)
        sys.exit(0)
    if rank == 0 and what == "lives on":
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 0:
        assert os.waitpid(child, 0)[1] == 0
    try:
        for _ in range(3):
            assert (comm.all_reduce(own) == 3).all()
        print("went on", flush=True)
    except R2cclError as error:
        print(error, flush=True)
"""


def start(what: str, algo: str, program: str = RANK) -> list["subprocess.Popen[str]"]:
    root = free_root()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return [subprocess.Popen([sys.executable, "-c", program, str(r), root, what, algo], **pipes) for r in range(2)]  # type: ignore[call-overload]


@pytest.mark.parametrize("algo", ["ring", "auto"])
def test_the_end_of_a_child_is_not_the_end_of_its_parent(algo: str) -> None:
    told = [rank.communicate(timeout=240) for rank in start("ends", algo)]
    assert [err for _, err in told] == ["", ""]
    of_the_child = "all_reduce in a forked child, on its parent's communicator; make a new one\n"
    assert [out for out, _ in told] == [f"{of_the_child}went on\n", "went on\n"]


def test_a_rank_that_is_killed_is_missed_at_once_though_a_child_of_its_lives() -> None:
    killed, other = start("lives on", "ring")
    with killed, other:
        began_s = time.monotonic()
        assert killed.wait(timeout=240) == -9
        out, _ = other.communicate(timeout=240)
        lost_s = time.monotonic() - began_s
        assert "rank 0" in out and "went on" not in out
        assert killed.stdin is not None and killed.stdout is not None
        killed.stdin.close()  # the child waits for that
        assert lost_s < 20, "as long as the child may live"
        assert "forked child" in killed.stdout.read()


def test_a_group_ends_while_children_live() -> None:
    assert [rank.communicate(timeout=240) for rank in start("", "", CLOSES)] == [("", "")] * 2
