"""The colours of systems, the same in every figure and table. Pure.

They differ in lightness, not only in hue, so they remain distinct in greyscale print and for colour-blind readers.
"""

import zlib
from collections.abc import Iterable

COLORS = ("#333333", "#E69F00", "#0072B2", "#CC79A7", "#009E73", "#56B4E9", "#8C510A", "#999999")
"""The first three have L* 21, 71, 46."""

OWN = {
    "failstop": 0, "hot_repair": 1, "balance": 2, "r2cc": 3, "auto": 4, "forest": 5, "gloo": 6, "optcc": 6,
    "checkpoint_restart": 7, "leaf_ring": 3, "owner_skewed": 7, "torchft": 5, "transfer_again": 4, "recompute": 5,
    "reroute": 6, "restart": 7, "nccl": 0, "nccl_ib_resiliency": 1, "nccl_r2ccl_plugin": 2, "nccl_plugin": 3,
    "nccl_fork": 4, "nccl_ib": 7, "ib_write_bw": 0,
}  # fmt: skip
"""The colours of the catalogue's systems. Those that are compared with each other differ."""

GLYPH = "\N{BLACK SQUARE}"
GLYPHS = (
    "\N{BLACK CIRCLE}", GLYPH, "\N{BLACK DIAMOND}", "\N{BLACK UP-POINTING TRIANGLE}",
    "\N{BLACK DOWN-POINTING TRIANGLE}", "\N{HEAVY GREEK CROSS}", "\N{BLACK STAR}", "\N{BLACK HEXAGON}",
)  # fmt: skip
"""Marks of systems in text, by run, in a report of several."""


def glyph(run: int) -> str:
    """The mark of a run in text (0: there is one run). Where the marks are used up it is the run's number."""
    if not run:
        return GLYPH
    return GLYPHS[run - 1] if run <= len(GLYPHS) else str(run)


def colors(systems: Iterable[str]) -> dict[str, int]:
    """The colour of each system, by its name, and so the same in every report. Where two would have one colour, the
    one that is not of `OWN`, or the later one, takes the next that is free. From the ninth system on colours repeat:
    numbers of eight and more are theirs again."""
    found: dict[str, int] = {}
    free: list[int] = []
    for name in sorted(systems, key=lambda name: (name not in OWN, name)):
        free = free or list(range(len(found), len(found) + len(COLORS)))
        own = OWN.get(name, zlib.crc32(name.encode()) % len(COLORS))
        distances = [(place - own) % len(COLORS) for place in free]
        found[name] = free.pop(distances.index(min(distances)))
    return found


def css() -> str:
    """A CSS class for the mark of each colour: ``s0``, ``s1``, ..."""
    return "".join(f".s{place}{{color:{color}}}" for place, color in enumerate(COLORS)) + "\n"
