"""Files beside the page: tables for other tools, and the run for programs. Does I/O."""

from collections.abc import Sequence
from pathlib import Path

from reports import machine, tables
from reports.drift import drift_lines
from reports.headline import Line
from reports.load import LoadedRun
from reports.targets import Target


def write_exports(
    runs: Sequence[LoadedRun],
    lines: Sequence[Line],
    held: Sequence[Target],
    bounds: Sequence[Sequence[Target]],
    out: Path,
) -> list[Path]:
    """Writes table.{md,csv,tex}, summary.json, junit.xml and metrics.prom into `out`; returns their paths. `held` is
    all that the headline table has; `bounds`, those of each run, decide with its trials whether it passes."""
    texts = {
        "table.md": tables.markdown(lines, [one for run in runs for one in drift_lines(run)]),
        "table.csv": tables.comma_separated(lines),
        "table.tex": tables.latex(lines),
        "summary.json": machine.json_summary(runs, lines, held),
        "junit.xml": machine.junit(runs, bounds),
        "metrics.prom": machine.prometheus(runs, lines),
    }
    return [_write(out / name, text) for name, text in texts.items()]


def _write(path: Path, text: str) -> Path:
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8", errors="replace")
    part.replace(path)
    return path
