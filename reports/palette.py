"""The colour and the mark of systems, the same in every figure and table of every report. Pure.

Both follow from the name alone, whatever else a report shows. There are fewer colours than systems: two that share one
differ in their mark, which is a shape in figures and in text, a dash of lines and a hatch of bars. Colours differ in
lightness, not only in hue, so they remain distinct in greyscale print and for colour-blind readers.
"""

import zlib
from collections.abc import Iterable
from typing import NamedTuple

from r2ccl_core.planning.algorithms import ALGORITHMS
from reports.trial import SIMULATED

OF_ALL = ("#333333", "#E69F00", "#0072B2", "#CC79A7", "#009E73", "#56B4E9", "#8C510A", "#999999")
"""Those that any system may have. The first three have L* 21, 71, 46."""
OF_ALGORITHMS = {one.alias or one.name: one.color for one in ALGORITHMS.values() if one.follows_health}
"""By the name of the system that runs it, the colour of each algorithm for losses: its record has it."""
COLORS = tuple(dict.fromkeys((*OF_ALL, *OF_ALGORITHMS.values())))
GLYPHS = (
    "\N{BLACK CIRCLE}", "\N{BLACK SQUARE}", "\N{BLACK DIAMOND}", "\N{BLACK UP-POINTING TRIANGLE}",
    "\N{BLACK DOWN-POINTING TRIANGLE}", "\N{HEAVY GREEK CROSS}", "\N{BLACK STAR}", "\N{HEAVY MULTIPLICATION X}",
    "\N{BLACK HEXAGON}", "\N{BLACK LEFT-POINTING POINTER}", "\N{BLACK RIGHT-POINTING POINTER}", "\N{BLACK PENTAGON}",
)  # fmt: skip
"""The marks in text; `reports.figures.style.MARKERS` are the same in figures."""
OF_OTHERS = 8
"""From here on marks are of systems outside the catalogue, so that no name has a pair of its systems."""


class Place(NamedTuple):
    """What decides how a system is drawn: its place among the colours, and among the marks."""

    color: int
    mark: int


def _of_algorithm(name: str, mark: int) -> Place:
    return Place(COLORS.index(OF_ALGORITHMS[name]), mark)


OWN = {
    "failstop": Place(0, 7), "balance": Place(2, 0), "auto": Place(4, 3), "gloo": Place(6, 5),
    "hot_repair": _of_algorithm("hot_repair", 1), "r2cc": _of_algorithm("r2cc", 2),
    "forest": _of_algorithm("forest", 4), "optcc": _of_algorithm("optcc", 6),
    "leaf_ring": _of_algorithm("leaf_ring", 5), "owner_skewed": _of_algorithm("owner_skewed", 5),
    "checkpoint_restart": Place(7, 6), "torchft": Place(5, 0),
    "transfer_again": Place(4, 1), "recompute": Place(5, 2), "reroute": Place(6, 3), "restart": Place(7, 7),
    "nccl": Place(0, 0), "nccl_ib_resiliency": Place(1, 3), "nccl_r2ccl_plugin": Place(2, 2),
    "nccl_plugin": Place(3, 4), "nccl_fork": Place(4, 5), "nccl_ib": Place(7, 4), "ib_write_bw": Place(0, 1),
}  # fmt: skip
"""Those of the catalogue's systems, a pair for each. Those that are compared with each other differ in colour, too."""


def glyph(mark: int) -> str:
    """A mark in text. Where the shapes are used up it is a number."""
    return GLYPHS[mark] if mark < len(GLYPHS) else str(mark + 1)


def own(name: str) -> Place:
    """The place of a name, measured or simulated."""
    plain = name.removesuffix(SIMULATED)
    if plain in OWN:
        return OWN[plain]
    number = zlib.crc32(plain.encode())
    color = COLORS.index(OF_ALGORITHMS[plain]) if plain in OF_ALGORITHMS else number % len(OF_ALL)
    return Place(color, OF_OTHERS + number // len(OF_ALL) % (len(GLYPHS) - OF_OTHERS))


def places(systems: Iterable[str]) -> dict[str, Place]:
    """The place of each of `systems`: its own. Only where a mark of its colour is taken, by another name outside the
    catalogue or by the same system measured, it has the next one, and keeps its colour."""
    found: dict[str, Place] = {}
    for name in sorted(systems, key=lambda name: (name not in OWN, name)):
        color, mark = own(name)
        taken = set(found.values())
        marks = [*range(mark, len(GLYPHS)), *range(mark)]
        found[name] = next((place for m in marks if (place := Place(color, m)) not in taken), Place(color, mark))
    return found


def places_by_run(systems: Iterable[tuple[str, int]]) -> dict[tuple[str, int], Place]:
    """In a report of several runs, where a system's mark is that of its run (1, 2, ...) and its colour its own. Of
    those of one run that share a colour, the first has that mark, and each further one another that no run has."""
    found: dict[tuple[str, int], Place] = {}
    told = sorted(set(systems), key=lambda one: (one[1], one[0] not in OWN, one[0]))
    runs = max((run for _, run in told), default=0)
    for name, run in told:
        color, marks = own(name).color, set(found.values())
        mark = run - 1
        while Place(color, mark) in marks:
            mark += runs
        found[name, run] = Place(color, mark)
    return found


def css() -> str:
    """A CSS class for the mark of each colour: ``s0``, ``s1``, ..."""
    return "".join(f".s{place}{{color:{color}}}" for place, color in enumerate(COLORS)) + "\n"
