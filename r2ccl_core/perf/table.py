"""nccl-tests' table: one line a size, out of place and in place side by side. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean


@dataclass(frozen=True)
class Result:
    """One size, one place: seconds per iteration and wrong elements over all checked iterations.

    `wrong` is None where nothing was checked.
    """

    size_bytes: int
    place: str
    times_s: tuple[float, ...]
    wrong: int | None

    @property
    def time_s(self) -> float:
        """Mean over the iterations, as nccl-tests reports."""
        return mean(self.times_s)

    def algbw(self) -> float:
        """Algorithm bandwidth in GB/s (1e9 bytes): size over time."""
        return self.size_bytes / self.time_s / 1e9

    def busbw(self, ranks: int) -> float:
        """Bus bandwidth in GB/s: what each port carries one way, ``algbw * 2(p-1)/p`` for AllReduce."""
        return self.algbw() * bus_factor(ranks)


def bus_factor(ranks: int) -> float:
    """AllReduce's bytes per port over its size, 1 for a single rank as nccl-tests has it."""
    return 2 * (ranks - 1) / ranks if ranks > 1 else 1.0


_COLUMNS = "    time   algbw   busbw  #wrong"
_UNITS = "    (us)  (GB/s)  (GB/s)        "
HEADER = (
    f"#{'':>55}{'out-of-place':>22}{'in-place':>31}\n"
    f"#{'size':>11}  {'count':>12}  {'type':>8}  {'redop':>6}  {'root':>6}{_COLUMNS}{_COLUMNS}\n"
    f"#{'(B)':>11}  {'(elements)':>12}{'':>26}{_UNITS}{_UNITS}".rstrip()
)


def line(size: int, count: int, dtype: str, op: str, ranks: int, results: Mapping[str, Result]) -> str:
    """One line of the table; a place that was not measured is left empty."""
    left = f"{size:>12}  {count:>12}  {dtype:>8}  {op:>6}  {-1:>6}"
    return (left + "".join(_columns(results.get(place), ranks) for place in ("out", "in"))).rstrip()


def _columns(result: Result | None, ranks: int) -> str:
    if result is None:
        return " " * len(_COLUMNS)
    wrong = "N/A" if result.wrong is None else str(result.wrong)
    time_us = f"{result.time_s * 1e6:.1f}" if result.time_s < 0.1 else f"{result.time_s * 1e6:.0f}"
    return f"{time_us:>8}  {result.algbw():>6.3f}  {result.busbw(ranks):>6.3f}  {wrong:>6}"


def summary(results: Sequence[Result], ranks: int) -> str:
    """The closing lines: wrong elements and the mean bus bandwidth over all sizes and places."""
    wrong = sum(r.wrong or 0 for r in results)
    measured = [r.busbw(ranks) for r in results if r.size_bytes]
    average = mean(measured) if measured else 0.0
    verdict = "OK" if wrong == 0 else "FAILED"
    return f"# Out of bounds values : {wrong} {verdict}\n# Avg bus bandwidth    : {average:g}"
