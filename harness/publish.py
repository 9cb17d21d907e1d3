"""From a run's folder to what people read: rows, figures and the page, all by `reports`."""

from pathlib import Path


def publish(folder: Path) -> Path:
    """Writes rows and report of all finished trials of a run; the page's path. Raises `ReportError`."""
    # Not at the top: pandas and Matplotlib take more than a second, and a sweep needs them at its end only.
    from reports.report import write_report

    return write_report(folder)
