"""The text of a training: read as it is, and a rank that cannot read its text ends the job with one line."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from torch_ranks import NEEDS_TORCH, needs_entry_point

from harness.errors import InvalidExperimentError
from harness.experiment.file import load
from harness.sweep.estimate import estimate_s
from harness.sweep.plan import plan
from harness.sweep.preflight import check_text, preflight
from harness.sweep.trial_warnings import warnings
from r2ccl_core.control.rendezvous import free_root

TRAINING = Path(__file__).parents[2] / "experiments" / "training.toml"
LETTERS = bytes(range(256)) * 8
RANKS = 3


@NEEDS_TORCH
def test_a_file_is_read_at_places_that_are_the_same_everywhere(tmp_path: Path) -> None:
    from harness.backends.text import source

    path = tmp_path / "text"
    path.write_bytes(LETTERS)
    given, following = source(str(path), 3).batch(5, 1, 4, 16)
    assert given.shape == following.shape == (4, 16)
    assert bool(((given + 1) % 256 == following).all())
    again, other = (source(str(path), 3).batch(5, replica, 4, 16)[0] for replica in (1, 2))
    assert bool((again == given).all()) and not bool((other == given).all())


@NEEDS_TORCH
def test_what_is_wrong_with_a_file_is_one_line(tmp_path: Path) -> None:
    from harness.backends.text import source

    path = tmp_path / "text"
    with pytest.raises(OSError, match=r"text cannot be read: No such file or directory; it must be on every host$"):
        source(str(path), 0)
    path.write_bytes(b"short")
    with pytest.raises(OSError, match=r"has 5 bytes, and a sequence needs 17$"):
        source(str(path), 0).batch(0, 0, 1, 16)
    with pytest.raises(InvalidExperimentError, match=r"workload.text: my.txt: give an absolute path"):
        load(TRAINING, ["workload.text=my.txt"])


def refused(*changes: str, systems: tuple[str, ...] | None = None) -> list[str]:
    with pytest.raises(InvalidExperimentError) as caught:
        preflight(load(TRAINING, list(changes)), "x.toml", systems)
    return str(caught.value).splitlines()


def test_a_text_that_is_not_here_or_too_short_is_told_before_anything_starts(tmp_path: Path) -> None:
    path = tmp_path / "text"
    told = f"x.toml: workload.text: {path}: "
    assert refused(f"workload.text={path}")[-1] == told + "there is no such file; name a text on every host"
    path.write_bytes(b"")
    line = refused(f"workload.text={path}")[-1]
    assert line == told + "has 0 bytes, and a sequence needs 65; name a longer text"
    for other, what in ((tmp_path, "is a folder"), (Path("/dev/null"), "is no file that can be read again and again")):
        line = f"x.toml: workload.text: {other}: {what}; name a file with a text on every host"
        assert refused(f"workload.text={other}")[-1] == line
        with pytest.raises(InvalidExperimentError) as caught:
            check_text(load(TRAINING, [f"workload.text={other}"]), "x.toml")
        assert str(caught.value) == line, "a dry run says so as well"


def test_a_fault_in_the_first_step_is_warned_of() -> None:
    def told(at: int) -> list[str]:
        experiment = load(TRAINING, [f"fault.at_iteration={at}"])
        return [line for line in warnings(plan(experiment)) if "first iteration of" in line]

    assert len(told(0)) == 1 and told(1) == []


def test_a_python_that_is_not_here_is_one_line() -> None:
    python = "/no/such/python"
    line = f"x.toml: cluster.python: {python}: no such program; name a Python's path"
    assert refused(f"cluster.python={python}") == [line]


def test_systems_that_do_not_run_need_nothing(tmp_path: Path) -> None:
    bare = tmp_path / "python"  # which has no PyTorch
    bare.write_text("#!/bin/sh\necho ModuleNotFoundError >&2\nexit 1\n")
    bare.chmod(0o755)
    told = refused(f"cluster.python={bare}", systems=("gloo",))
    assert [line.partition(" has no PyTorch")[0] for line in told] == [f"x.toml: workload.backend: train_gloo: {bare}"]
    assert len(refused(f"cluster.python={bare}")) == 2


def trained(rank: int, root: str, text: Path) -> "subprocess.Popen[str]":
    """A rank that would train for a very long time, in a session of its own."""
    argv = [sys.executable, "-m", "harness.backends.training_rank", "--library", "r2ccl", "--layers", "1"]
    argv += ["--width", "16", "--heads", "2", "--context", "16", "--batch", "2", "--bucket-bytes", "4096"]
    argv += ["--steps", "1000000", "--dp", str(RANKS), "--text", str(text)]
    env = {"R2CC_RANK": str(rank), "R2CC_SIZE": str(RANKS), "R2CC_ROOT": root, "OMP_NUM_THREADS": "1"}
    env |= {"R2CC_SOCKET_IFNAME": f"lo@127.{rank + 1}.0.1,lo@127.{rank + 1}.0.2"}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        argv, env=os.environ | env, stdin=pipe, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    )


def _own(err: str) -> list[str]:
    """Lines that are no warnings of Python or PyTorch, which warns where a host's name is not known."""
    return [line for line in err.splitlines() if "Warning" not in line and not line.startswith("[W")]


@NEEDS_TORCH
@pytest.mark.slow
@needs_entry_point("torch.backends")
def test_a_rank_that_dies_in_data_loading_ends_the_job_with_one_line(tmp_path: Path) -> None:
    texts = [tmp_path / f"text{rank}" for rank in range(RANKS)]
    for path in texts:
        path.write_bytes(LETTERS)
    root = free_root()
    started = [trained(rank, root, path) for rank, path in enumerate(texts)]
    try:
        said = [_until_trained(process) for process in started]
        texts[1].write_bytes(LETTERS[:20])
        for process, events in zip(started, said, strict=True):
            assert process.stdout is not None and process.stderr is not None
            # A rank also ends with its standard input, so that is closed only after its end.
            events += [json.loads(line) for line in process.stdout]
            err = process.stderr.read()
            assert process.wait(60) == 3, err
            assert len(_own(err)) == 1, err
            with pytest.raises(ProcessLookupError):
                os.killpg(process.pid, 0)
    finally:
        for process in started:
            process.kill()
            process.communicate()
    last = [events[-1] for events in said]
    assert [event["event"] for event in last] == ["error"] * RANKS
    assert f"the text {texts[1]} has become shorter: byte " in last[1]["message"]
    # By its number, or by its address where its host answers first that nobody listens there any more.
    assert all(re.search(r"rank 1|127\.2\.0\.", event["message"]) for event in (last[0], last[2])), last


@NEEDS_TORCH
@pytest.mark.slow
def test_a_rank_that_gets_no_memory_says_so_in_one_line() -> None:
    argv = [sys.executable, "-m", "harness.backends.training_rank", "--library", "gloo", "--layers", "1"]
    # The embedding of 40 million positions is 76 GiB: more than the limit, so that no page of it is ever touched.
    argv += ["--width", "512", "--heads", "2", "--context", "40000000", "--batch", "1", "--bucket-bytes", "4096"]
    env = {"R2CC_RANK": "0", "R2CC_SIZE": "1", "R2CC_ROOT": free_root(), "OMP_NUM_THREADS": "1"}
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        ["prlimit", f"--as={64 << 30}", *argv, "--steps", "1"],
        env=os.environ | env, stdin=pipe, stdout=pipe, stderr=pipe, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None and process.stderr is not None
        # A rank also ends with its standard input, so that is closed only after its end.
        events, said = process.stdout.read().splitlines(), process.stderr.read()
        assert process.wait(60) == 3, said
    finally:
        process.kill()
        process.communicate()
    lines = _own(said)
    assert lines == ["out of memory: 76.3 GiB more cannot be had; choose a smaller model, batch or context"]
    assert json.loads(events[-1])["message"] == lines[0]


def _until_trained(process: "subprocess.Popen[str]") -> list[dict[str, Any]]:
    """What a rank has said until its first step was done."""
    assert process.stdout is not None
    events: list[dict[str, Any]] = []
    while not events or events[-1]["event"] != "iteration":
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        events.append(json.loads(line))
    return events


TIMED = [
    "cluster.hosts=3", "cluster.rate=200 Mbit/s", "workload.model=1M", "workload.steps=16", "workload.warmup=2",
    "workload.batch=4", "workload.context=64", "workload.layout={}",
]  # fmt: skip


def test_the_estimate_has_what_loading_pytorch_and_computing_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dry run told 33 s of a sweep that took 177. Trials like these took 7.4 to 10.1 s on two processors."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    trials = [one for one in plan(load(TRAINING, TIMED)) if one.fault is not None]
    assert 7 < estimate_s(trials, 0) / len(trials) < 9
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)))
    assert 4 < estimate_s(trials, 0) / len(trials) < 6.5, "a rank has a processor of its own, and no more"
