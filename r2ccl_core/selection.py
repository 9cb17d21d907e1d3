"""Which schedule a collective runs: a `Select` answers for a collective, a size and a number of ranks.

The answer must be the same on every rank, and the same object for the same question: connections and executors
are kept by schedule.
"""

import os
from collections.abc import Callable, Mapping
from functools import cache

from r2ccl_core.errors import UnitError, UsageError
from r2ccl_core.schedule import Schedule
from r2ccl_core.schedules import ring
from r2ccl_core.units import parse_size

Select = Callable[[str, int, int], Schedule]
"""Collective, size in bytes, number of ranks; `UsageError` for a collective it does not know."""

DEFAULT_SLICE_BYTES = 256 * 1024
_MIN_SLICE_BYTES = 64 * 1024


def ring_slices(nbytes: int, nranks: int, slice_bytes: int) -> int:
    """In how many pieces each of the ring's sections is pipelined: of about `slice_bytes`, at least two
    where they stay above 64 KiB, so that a hop overlaps the next."""
    section = nbytes // nranks
    return max(1, round(section / slice_bytes), min(2, section // _MIN_SLICE_BYTES))


def ring_selection(slice_bytes: int) -> Select:
    """Rings, whatever the health of the NICs: Balance in the transport does the rest."""
    build = cache(ring.all_reduce)

    def select(collective: str, nbytes: int, nranks: int) -> Schedule:
        if collective != "all_reduce":
            raise UsageError(f"no schedule is selected for {collective}; run one with Communicator.run")
        return build(nranks, slices=ring_slices(nbytes, nranks, slice_bytes))

    return select


def default_selection(environ: Mapping[str, str] = os.environ) -> Select:
    """What the environment asks for: slices of R2CC_SLICE_BYTES (256 KiB)."""
    text = environ.get("R2CC_SLICE_BYTES", "")
    try:
        slice_bytes = parse_size(text) if text else DEFAULT_SLICE_BYTES
    except UnitError as error:
        raise UsageError(f"R2CC_SLICE_BYTES={text}: {error}") from error
    if slice_bytes < 1:
        raise UsageError(f"R2CC_SLICE_BYTES={text}: give at least one byte, such as 256KiB")
    return ring_selection(slice_bytes)
