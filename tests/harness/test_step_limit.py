"""The limit of a step that waits for a GPU: it fires once for a step that is too long, and for no other."""

import subprocess
import sys
import threading
import time
from queue import Queue

import pytest

from harness.backends.step_limit import StepLimit

HANGS = """
import os, time
from harness.backends.step_limit import StepLimit
def leave(why):
    print(why, flush=True)
    time.sleep(1)
    os._exit(3)
with StepLimit(0.2, leave).step("all_reduce in iteration 7"):
    time.sleep(%g)
print("goes on", flush=True)
"""


def test_a_process_that_hangs_ends_with_one_line() -> None:
    done = subprocess.run([sys.executable, "-c", HANGS % 60], capture_output=True, text=True, timeout=50)
    assert done.returncode == 3
    assert done.stdout == (
        "all_reduce in iteration 7 did not end within 0.2 s (sweep.limits.give_up): NCCL still waits for its network\n"
    )


def test_a_step_that_was_too_long_does_not_go_on() -> None:
    # as after ncclCommAbort, while the process is being ended
    done = subprocess.run([sys.executable, "-c", HANGS % 0.7], capture_output=True, text=True, timeout=50)
    assert done.returncode == 3
    assert done.stdout.count("\n") == 1


def test_steps_in_time_are_left_alone() -> None:
    told: Queue[str] = Queue()
    limit = StepLimit(2.0, told.put)
    for number in range(200):
        with limit.step(str(number)):
            time.sleep(0.001)
    assert told.empty()


def test_an_error_at_the_librarys_own_limit_is_told_as_ours() -> None:
    """Gloo: the rank that timed out said so, the other that a worker had probably crashed."""
    limit = StepLimit(None, lambda why: None, library_s=0.2)
    with pytest.raises(RuntimeError, match=r"^all_reduce did not end within 0\.2 s \(sweep\.limits\.give_up\)$"):
        fail_after(0.19, limit)
    with pytest.raises(RuntimeError, match=r"^Connection closed by peer$"):
        fail_after(0, limit)


def fail_after(seconds: float, limit: StepLimit) -> None:
    with limit.step("all_reduce"):
        time.sleep(seconds)
        raise RuntimeError("Connection closed by peer")


def long_step(limit: StepLimit) -> None:
    with limit.step("long"):
        time.sleep(60)


def test_only_what_is_inside_a_step_counts() -> None:
    told: Queue[str] = Queue()
    limit = StepLimit(0.05, told.put)
    with limit.step("short"):
        pass
    time.sleep(0.3)
    assert told.empty()
    thread = threading.Thread(target=long_step, args=[limit], daemon=True)
    thread.start()
    assert told.get(timeout=30).startswith("long did not end")
