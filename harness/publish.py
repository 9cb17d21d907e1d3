"""From a run's folder to what people read: rows, figures and the page, all by `reports`."""

from pathlib import Path


def publish(folder: Path) -> Path:
    """Writes rows and report of all finished trials of a run; the page's path. Raises `ReportError`."""
    # Not at the top: pandas and Matplotlib take more than a second, and a sweep needs them at its end only.
    from reports.errors import ReportError
    from reports.report import write_report

    try:
        return write_report(folder)
    except OSError as error:
        why = error.strerror or str(error)
        raise ReportError(
            f"{folder}: the report cannot be written ({why}); copy the folder to where you may"
        ) from error
