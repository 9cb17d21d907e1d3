"""nccl-tests' table: one line a size, out of place and in place side by side. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

ITEM_BYTES = {"float32": 4, "float64": 8, "int32": 4, "int64": 8, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True)
class Case:
    """One line of the table: `size_bytes` asked for, of which whole elements are measured."""

    size_bytes: int
    dtype: str
    op: str

    @property
    def count(self) -> int:
        """Elements."""
        return self.size_bytes // ITEM_BYTES[self.dtype]


@dataclass(frozen=True)
class Result:
    """One case in one place: per iteration its start (rank 0's, CLOCK_REALTIME in ns) and duration in seconds, and
    wrong elements over all checked iterations and ranks, None where nothing was checked."""

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
        return self.case.count * ITEM_BYTES[self.case.dtype] / self.time_s / 1e9

    def busbw(self, ranks: int) -> float:
        """Bus bandwidth in GB/s: what each port carries one way, ``algbw * 2(p-1)/p`` for AllReduce."""
        return self.algbw() * bus_factor(ranks)


def bus_factor(ranks: int) -> float:
    """AllReduce's bytes per port over its size; 0 for a rank alone, whose port carries nothing."""
    return 2 * (ranks - 1) / ranks


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


def line(case: Case, ranks: int, results: Mapping[str, Result]) -> str:
    """One line of the table; a place that was not measured is left empty."""
    size_bytes = case.count * ITEM_BYTES[case.dtype]
    left = f"{size_bytes:>12}  {case.count:>12}  {case.dtype:>8}  {case.op:>6}  {-1:>6}"
    return (left + "".join(_columns(results.get(place), ranks) for place in ("out", "in"))).rstrip()


def _columns(result: Result | None, ranks: int) -> str:
    if result is None:
        return " " * 35
    wrong = "N/A" if result.wrong is None else str(result.wrong)
    time_us = f"{result.time_s * 1e6:.1f}" if result.time_s < 0.1 else f"{result.time_s * 1e6:.0f}"
    return f"  {time_us:>7}  {result.algbw():>6.2f}  {result.busbw(ranks):>6.2f}  {wrong:>6}"


def average_busbw(results: Sequence[Result], ranks: int) -> float:
    """GB/s, the mean over all cases and places that have elements."""
    measured = [result.busbw(ranks) for result in results if result.case.count]
    return sum(measured) / len(measured) if measured else 0.0


def summary(results: Sequence[Result], ranks: int) -> str:
    """The closing lines: wrong elements and the mean bus bandwidth over all sizes and places."""
    wrong = sum(result.wrong or 0 for result in results)
    verdict = "OK" if wrong == 0 else "FAILED"
    average = average_busbw(results, ranks)
    return f"# Out of bounds values : {wrong} {verdict}\n# Avg bus bandwidth    : {average:g}\n#"
