"""Checks that the arrays of this process's ranks fit into memory before any of them is allocated."""

from collections.abc import Sequence

from r2ccl_core.errors import UsageError
from r2ccl_core.host.memory import available_bytes, shown
from r2ccl_core.model.bandwidth import ITEM_BYTES
from r2ccl_core.perf.data import Task
from r2ccl_core.perf.table import Case
from r2ccl_core.units import format_size


def check(cases: Sequence[Case], places: Sequence[str], here: int, available: int | None = None) -> None:
    """Raises `UsageError` if the arrays of the largest case do not fit for `here` ranks. With too little memory the
    kernel would kill this process, or another, in the middle of a measurement."""
    needed, case = max(((_needed_bytes(case, places), case) for case in cases), key=lambda pair: pair[0])
    free = available_bytes() if available is None else available
    if free is not None and here * needed > free:
        ranks = "" if here == 1 else f" of {here} ranks"
        raise UsageError(
            f"{format_size(case.size_bytes)}: the arrays{ranks} need {shown(here * needed)} of memory, "
            f"{shown(free)} are available; give smaller sizes (-b, -e)"
        )


def _needed_bytes(case: Case, places: Sequence[str]) -> int:
    """Memory of one rank at one time: out of place both input and output, in place the larger."""
    counts = Task(case.collective, 0, case.ranks, case.count, case.dtype).counts()
    return (sum(counts) if "out" in places else max(counts)) * ITEM_BYTES[case.dtype]
