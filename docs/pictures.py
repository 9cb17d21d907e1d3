"""The pictures in README.md: what a sweep prints on a terminal, and the first figure of the report that it writes.

python docs/pictures.py                 runs the sweep of the README (root; about two minutes) and draws both pictures
python docs/pictures.py COMMAND...      the same for another command that ends with the path of a report
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

IMAGES = Path(__file__).resolve().parent / "images"
COMMAND = ("harness", "sweep", "experiments/allreduce.toml", "--only", "size=64MiB", "--fresh")
COLUMNS = 112
"""Width of the pictured terminal."""
SHOWN_TRIALS = 3
"""Trials whose lines are pictured; one line stands for the others."""


def shortened(output: str) -> str:
    """`output` without the lines of all trials but the first ones; a line says how many are left out."""
    kept, left_out, inside = [], 0, False
    for line in output.split("\n"):
        trial = re.match(r"\[ *(\d+)/\d+\] ", line)
        inside = trial is not None or (inside and line.startswith("    "))
        if trial is not None and int(trial[1]) > SHOWN_TRIALS:
            left_out += 1
        if inside and left_out:
            continue
        if left_out:
            kept.append(f"... {left_out} more trials")
            left_out = 0
        kept.append(line)
    return "\n".join(kept)


def picture(output: str, title: str) -> str:
    """`output` as a terminal window in SVG. It loads no font: the viewer's own monospaced one is stretched to fit."""
    console = Console(width=COLUMNS, record=True, file=io.StringIO(), markup=False, highlight=False)
    console.print(Text.from_ansi(output.rstrip("\n")))
    svg = console.export_svg(title=title, unique_id="terminal")
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


def on_white(figure: str) -> str:
    """A figure whose background is white also where a page is dark."""
    return re.sub(r"(<svg [^>]*>)", r'\1<rect width="100%" height="100%" fill="white"/>', figure, count=1)


def report_of(output: str) -> Path:
    """The folder of the report that the command names in its last line."""
    found = re.findall(r"^report: (.+)/report\.html$", output, re.MULTILINE)
    if not found:
        raise SystemExit("the command printed no line `report: PATH/report.html`; see its output above")
    return Path(found[-1])


def main(command: list[str]) -> None:
    """Runs the command and draws its output and the first figure of its report."""
    done = subprocess.run(
        command, env={**os.environ, "COLUMNS": str(COLUMNS)}, stdout=subprocess.PIPE, text=True, check=False
    )
    print(done.stdout)
    figure = report_of(done.stdout) / "figures" / "overview.svg"
    IMAGES.mkdir(exist_ok=True)
    (IMAGES / "sweep.svg").write_text(picture(shortened(done.stdout), shlex.join(command)))
    (IMAGES / "report.svg").write_text(on_white(figure.read_text()))


if __name__ == "__main__":
    main(sys.argv[1:] or list(COMMAND))
