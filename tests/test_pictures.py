"""docs/pictures.py: what it leaves out of a sweep's output, and that README shows the pictures it makes."""

from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest
from scripts import load

ROOT = Path(__file__).resolve().parent.parent
TRIALS = "".join(f"[{n:>2}/12] balance 64MiB ok\n    T/T0 1.4{n}\n" for n in range(1, 13))
OUTPUT = f"writing to runs/x\n{TRIALS}  size  system\n 64MiB  balance\nreport: runs/x/report.html\n"


@pytest.fixture
def pictures() -> ModuleType:
    return load(ROOT / "docs" / "pictures.py")


def test_the_first_trials_stay_and_the_others_are_counted(pictures: ModuleType) -> None:
    lines = pictures.shortened(OUTPUT).split("\n")
    assert lines[:8] == [
        "writing to runs/x", "[ 1/12] balance 64MiB ok", "    T/T0 1.41", "[ 2/12] balance 64MiB ok", "    T/T0 1.42",
        "[ 3/12] balance 64MiB ok", "    T/T0 1.43", "... 9 more trials",
    ]  # fmt: skip
    assert lines[8:] == ["  size  system", " 64MiB  balance", "report: runs/x/report.html", ""]


def test_few_trials_are_all_shown(pictures: ModuleType) -> None:
    text = "[1/2] a\n[2/2] b\nreport: runs/x/report.html\n"
    assert pictures.shortened(text) == text


def test_the_picture_is_svg_that_loads_nothing(pictures: ModuleType) -> None:
    svg = pictures.picture(OUTPUT, "harness sweep")
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    assert "@font-face" not in svg and "url(http" not in svg
    assert pictures.report_of(OUTPUT) == Path("runs/x")
    with pytest.raises(SystemExit, match="no line"):
        pictures.report_of("nothing")


def test_the_readme_shows_the_pictures(pictures: ModuleType) -> None:
    readme = (ROOT / "README.md").read_text()
    for name in ("sweep.svg", "report.svg"):
        assert f"(docs/images/{name})" in readme
        assert ElementTree.parse(pictures.IMAGES / name).getroot().tag.endswith("svg")
