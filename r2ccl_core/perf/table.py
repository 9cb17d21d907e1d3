"""nccl-tests' table: one line per size, out of place and in place side by side. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from r2ccl_core.model.bandwidth import bandwidths_gbs, moved_bytes, part_count
from r2ccl_core.model.collective import reduces

ROOTED = ("broadcast", "reduce")


@dataclass(frozen=True)
class Case:
    """One line of the table: `size_bytes` requested, of which whole elements (or blocks of them) are measured."""

    collective: str
    ranks: int
    size_bytes: int
    dtype: str
    op: str
    root: int = 0

    @property
    def count(self) -> int:
        """Elements of a block, or of the array if there are no blocks."""
        return part_count(self.collective, self.size_bytes, self.dtype, self.ranks)

    @property
    def moved_bytes(self) -> int:
        """The size that is measured."""
        return moved_bytes(self.collective, self.size_bytes, self.dtype, self.ranks)

    @property
    def shown_op(self) -> str:
        """The operation, if there is one."""
        return self.op if reduces(self.collective) else "none"

    @property
    def shown_root(self) -> int:
        """The root; -1 if there is none."""
        return self.root if self.collective in ROOTED else -1


@dataclass(frozen=True)
class Result:
    """One case in one place: per iteration its start (rank 0's, CLOCK_REALTIME in ns) and duration in seconds, and
    wrong elements over all checked iterations and ranks (None if nothing was checked)."""

    case: Case
    place: str
    started_ns: tuple[int, ...]
    times_s: tuple[float, ...]
    wrong: int | None

    @property
    def time_s(self) -> float:
        """Mean over the iterations, as nccl-tests reports."""
        return sum(self.times_s) / len(self.times_s)

    def algbw(self) -> float:
        """Algorithm bandwidth in GB/s (1e9 bytes): size over time."""
        return self._bandwidths()[0]

    def busbw(self) -> float:
        """Bus bandwidth in GB/s: what the busiest port carries in one direction."""
        return self._bandwidths()[1]

    def _bandwidths(self) -> tuple[float, float]:
        case = self.case
        return bandwidths_gbs(case.collective, case.size_bytes, case.dtype, case.ranks, self.time_s)


def _heads() -> str:
    """Three lines of column heads over the columns of `line`."""
    place = ["  {:>7}  {:>6}  {:>6}  {:>6}".format(*heads) for heads in _PLACE_HEADS]
    whole = ["{:>11}  {:>12}  {:>8}  {:>6}  {:>6}".format(*heads) for heads in _CASE_HEADS]
    titles = " " * len(whole[0]) + f"{'out-of-place':>{len(place[0])}}{'in-place':>{len(place[0])}}"
    return "\n".join(f"#{row}".rstrip() for row in [titles, *(w + p + p for w, p in zip(whole, place, strict=True))])


_CASE_HEADS = (("size", "count", "type", "redop", "root"), ("(B)", "(elements)", "", "", ""))
_PLACE_HEADS = (("time", "algbw", "busbw", "#wrong"), ("(us)", "(GB/s)", "(GB/s)", ""))


def header(settings: Mapping[str, object], ranks: Sequence[str]) -> str:
    """What is measured, where every rank runs, and the column heads."""
    first = "# " + " ".join(f"{name}: {value}" for name, value in settings.items())
    places = [f"#  Rank {rank:>2} {place}" for rank, place in enumerate(ranks)]
    return "\n".join([first, "#", "# Using ranks", *places, "#", _heads()])


def line(case: Case, results: Mapping[str, Result]) -> str:
    """One line of the table; a place that was not measured stays empty."""
    left = f"{case.moved_bytes:>12}  {case.count:>12}  {case.dtype:>8}  {case.shown_op:>6}  {case.shown_root:>6}"
    return (left + "".join(_columns(results.get(place)) for place in ("out", "in"))).rstrip()


def _columns(result: Result | None) -> str:
    if result is None:
        return " " * 35
    wrong = "N/A" if result.wrong is None else str(result.wrong)
    time_us = f"{result.time_s * 1e6:.1f}" if result.time_s < 0.1 else f"{result.time_s * 1e6:.0f}"
    return f"  {time_us:>7}  {result.algbw():>6.2f}  {result.busbw():>6.2f}  {wrong:>6}"


def average_busbw(results: Sequence[Result]) -> float:
    """GB/s, the mean over all cases and places that have elements."""
    measured = [result.busbw() for result in results if result.case.count]
    return sum(measured) / len(measured) if measured else 0.0


def summary(results: Sequence[Result]) -> str:
    """The closing lines: wrong elements and the mean bus bandwidth over all sizes and places."""
    wrong = sum(result.wrong or 0 for result in results)
    conclusion = "OK" if wrong == 0 else "FAILED"
    average = average_busbw(results)
    return f"# Out of bounds values : {wrong} {conclusion}\n# Avg bus bandwidth    : {average:g}\n#"
