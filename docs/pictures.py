"""The pictures in README.md: what a sweep prints on a terminal, and the first figure of the report that it writes.

python docs/pictures.py                 runs the sweep of the README (root; about two minutes) and draws both pictures
python docs/pictures.py COMMAND...      the same for another command that ends with the path of a report
"""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

IMAGES = Path(__file__).resolve().parent / "images"
COMMAND = ("harness", "sweep", "experiments/allreduce.toml", "--only", "size=64MiB", "--fresh")
COLUMNS = 112
"""Width of the pictured terminal: the lines of one trial fit."""


def picture(output: str, title: str) -> str:
    """`output` as a terminal window in SVG. It loads no font: the viewer's own monospaced one is stretched to fit."""
    console = Console(width=COLUMNS, record=True, file=io.StringIO(), markup=False, highlight=False)
    console.print(Text.from_ansi(output.rstrip("\n")))
    svg = console.export_svg(title=title, unique_id="terminal")
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


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
    (IMAGES / "sweep.svg").write_text(picture(done.stdout, shlex.join(command)))
    shutil.copyfile(figure, IMAGES / "report.svg")


if __name__ == "__main__":
    main(sys.argv[1:] or list(COMMAND))
