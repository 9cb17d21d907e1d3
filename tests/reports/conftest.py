"""Of a report's figures the files that no page holds are made in one test: drawing them takes an eighth of the time."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from reports import embed


def as_in_pages(figure: Figure, folder: Path, name: str, caption: str, alt: str, types: Sequence[str] = ()) -> str:
    """Whatever `types` says: an SVG, and a PNG where that is too large for a page."""
    return embed.save(figure, folder, name, caption, alt, ("svg",))


@pytest.fixture(scope="module", autouse=True)
def figures_of_pages_alone() -> Iterator[None]:
    """PDFs and PNGs of a run are made in test_report.py, those of published experiments in test_reproduce.py."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("reports.report.save", as_in_pages)
        yield
