"""From a run's folder to what people read: rows and the report, through `reports` alone."""

from pathlib import Path

from reports.load import write_rows


def publish(folder: Path) -> Path:
    """Writes rows of all finished trials of the run; the rows' path."""
    return write_rows(folder)[0]
