"""Starts the ranks of a test of PyTorch as processes of this machine, two NICs each, and holds them to their checks."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

import pytest
from forked import Forks

from r2ccl_core.control.rendezvous import free_root

SIZE = 3
NEEDS_TORCH = pytest.mark.skipif(
    find_spec("torch") is None, reason='PyTorch is not installed (pip install "r2ccl[torch]")'
)


def needs_entry_point(group: str) -> pytest.MarkDecorator:
    """Skips where this checkout was installed before it had the entry point "r2ccl" in the group."""
    return pytest.mark.skipif(
        not any(found.name == "r2ccl" for found in entry_points(group=group)),
        reason=f"this checkout was installed before it had the entry point in {group} (pip install -e .)",
    )


@contextmanager
def torch_forks(**env: str) -> Iterator[Forks]:
    """What starts ranks that need PyTorch, which is imported once for all of them, with `env` in its environment."""
    forks = Forks("torch", options=("-W", "ignore::FutureWarning"), env={"OMP_NUM_THREADS": "1", **env})
    try:
        yield forks
    finally:
        forks.close()


def run(
    forks: Forks, program: Path, folder: Path, *checks: str, env: Mapping[str, str] | None = None, size: int = SIZE
) -> None:
    """Runs the checks on each of `size` ranks; each must end well and say so."""
    host, _, port = free_root().partition(":")
    job = [
        (
            [str(program), *checks],
            {
                **(env or {}),
                "RANK": str(rank),
                "WORLD_SIZE": str(size),
                "MASTER_ADDR": host,
                "MASTER_PORT": port,
                "R2CC_SOCKET_IFNAME": f"lo@127.{rank + 1}.0.1,lo@127.{rank + 1}.0.2",
            },
        )
        for rank in range(size)
    ]
    ended = [(status, out + err) for status, out, err in forks.run(folder, job)]
    said = "\n".join(f"rank {rank}: {line}" for rank, (_, out) in enumerate(ended) for line in out.splitlines())
    assert [status for status, _ in ended] == [0] * size, said
    for _, out in ended:
        done = [line for line in out.splitlines() if line.startswith("ok ")]
        assert done == [f"ok {name}" for name in checks], said
        assert "leaked" not in out, said
