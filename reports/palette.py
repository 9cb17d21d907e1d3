"""The colours of systems, the same in every figure and table. Pure.

They differ in lightness, not only in hue, so they remain distinct in greyscale print and for colour-blind readers.
"""

COLORS = ("#333333", "#E69F00", "#0072B2", "#CC79A7", "#009E73", "#56B4E9", "#8C510A", "#999999")
"""The colours of systems: mode 0 has the first, mode 1 the second, and so on; the first three have L* 21, 71, 46."""

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


def css() -> str:
    """A CSS class for the mark of each colour: ``s0``, ``s1``, ..."""
    return "".join(f".s{place}{{color:{color}}}" for place, color in enumerate(COLORS)) + "\n"
