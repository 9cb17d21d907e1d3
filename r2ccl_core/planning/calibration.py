"""Measures the cost of a message and of a byte on this group's network, with a few rings, when it is first needed."""

import time
from collections.abc import Callable

import numpy as np

from r2ccl_core.planning.selection import Cost

SMALL_ELEMENTS = 64
LARGE_ELEMENTS = 512 * 1024
_REPEATS = 3


def measure(run: Callable[[np.ndarray], object], ranks: int) -> tuple[float, float]:
    """Seconds per hop of a ring of `ranks`, and seconds per byte on a rank's ports, as this rank sees them.

    `run` does one ring AllReduce in place; every rank measures together.
    """
    hops = 2 * (ranks - 1)
    small_s = _seconds(run, np.zeros(SMALL_ELEMENTS, np.float32))
    large = np.zeros(LARGE_ELEMENTS, np.float32)
    large_s = _seconds(run, large)
    byte_s = max(large_s - small_s, 1e-9) / (large.nbytes * hops / ranks)
    return small_s / hops, byte_s


def agreed(measured: list[tuple[float, float]], nics: int) -> Cost:
    """The group's cost: its slowest rank's, for `nics` NICs a rank."""
    alpha_s = max(alpha for alpha, _ in measured)
    byte_s = max(byte for _, byte in measured)
    return Cost(alpha_s, 1 / byte_s / nics)


def _seconds(run: Callable[[np.ndarray], object], data: np.ndarray) -> float:
    """The minimum of a few runs: what the network can do, regardless of other load on the host."""
    times = []
    for _ in range(_REPEATS):
        start_s = time.perf_counter()
        run(data)
        times.append(time.perf_counter() - start_s)
    return min(times)
