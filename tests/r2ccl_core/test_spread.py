"""Work on processes and on Dask: the same numbers everywhere, what is finished is kept, and refusals in one line."""

import itertools
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from r2ccl_core import spread
from r2ccl_core.errors import UsageError
from r2ccl_core.jobs import montecarlo
from r2ccl_core.jobs.failures import PRESETS
from r2ccl_core.jobs.goodput import Job
from r2ccl_core.jobs.layout import Layout
from r2ccl_core.jobs.model import MODELS
from r2ccl_core.jobs.systems import SYSTEMS

JOB = Job(MODELS["gpt3-6.7b"], Layout(data=64, micro_batch=2), hosts=8)


def numbers() -> object:
    """A small Monte Carlo."""
    return montecarlo.overheads(JOB, (1, 3), patterns=20, systems=SYSTEMS[1:4])


@contextmanager
def dask(workers: int) -> Iterator[str]:
    """A scheduler on this machine with worker threads; its address."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        workers, 1, processes=False, protocol="tcp", host="127.0.0.1", dashboard_address=None
    ) as cluster:
        yield cluster.scheduler_address


def unused_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_the_numbers_are_the_same_wherever_they_are_made() -> None:
    here = numbers()
    with spread.on(spread.Place(processes=2)):
        assert numbers() == here
    with dask(2) as address, spread.on(spread.Place(dask=address)):
        assert numbers() == here


def times_ten(text: str) -> float:
    """Notes that it was called."""
    folder, number = text.split()
    with (Path(folder) / "calls").open("a") as file:
        file.write(f"{number}\n")
    if number == os.environ.get("STOP_AT"):
        raise KeyboardInterrupt
    return 10.0 * float(number)


def test_what_is_finished_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = [f"{tmp_path} {number}" for number in range(6)]
    with spread.on(spread.Place(processes=1, folder=tmp_path / "kept")):
        monkeypatch.setenv("STOP_AT", "4")
        with pytest.raises(KeyboardInterrupt):
            spread.results("tens", times_ten, pieces)
        monkeypatch.delenv("STOP_AT")
        (kept,) = (tmp_path / "kept").iterdir()
        with kept.open("a") as file:
            file.write('["cut o')  # killed while it wrote
        assert spread.results("tens", times_ten, pieces) == [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]
        assert spread.results("tens", times_ten, pieces) == [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]
        assert (tmp_path / "calls").read_text().split() == ["0", "1", "2", "3", "4", "4", "5"]
        spread.results("other tens", times_ten, pieces[:1])
    assert (tmp_path / "calls").read_text().split()[-1] == "0", "another work has its own pieces"


def test_a_monte_carlo_that_was_kept_is_read_as_it_was(tmp_path: Path) -> None:
    def both() -> object:
        return numbers(), montecarlo.goodputs(JOB, PRESETS["upper"], days=5, trials=6, systems=SYSTEMS[:3])

    here = both()
    with spread.on(spread.Place(processes=1, folder=tmp_path)):
        assert both() == here
        assert both() == here
    assert len(list(tmp_path.iterdir())) == 2


def fails(number: int) -> int:
    """One piece of work that cannot be done."""
    if number == 3:
        raise UsageError("three is too many")
    return number


def ends(number: int) -> int:
    """A process that the kernel kills."""
    os._exit(number)


def test_what_a_piece_raises_is_raised() -> None:
    with pytest.raises(UsageError, match="three is too many"):
        spread.results("numbers", fails, range(6))
    with spread.on(spread.Place(processes=2)), pytest.raises(UsageError, match="memory for fewer"):
        spread.results("numbers", ends, range(6))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_a_scheduler_that_cannot_be_used_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr(spread, "CONNECT_S", 0.5)
    nobody = f"tcp://127.0.0.1:{unused_port()}"
    with spread.on(spread.Place(dask=nobody)), pytest.raises(UsageError, match="no scheduler answers"):
        spread.results("numbers", fails, range(2))
    told = itertools.count()
    monkeypatch.setattr(spread, "_program", lambda packages: str(next(told)))
    with dask(1) as address, spread.on(spread.Place(dask=address)), pytest.raises(UsageError, match="another version"):
        spread.results("numbers", fails, range(2))
    with pytest.raises(UsageError, match="0 processes"):
        spread.Place(processes=0)
