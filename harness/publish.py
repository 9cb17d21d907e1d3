"""Writes rows, figures and the page of run folders, all through `reports`."""

import sys
from collections.abc import Sequence
from pathlib import Path


def publish(folders: Path | Sequence[Path], out: Path | None = None) -> Path:
    """Writes rows and report of all finished trials of a run, or of several into `out`; the page's path.

    Trials that cannot be read are named on standard error. Raises `ReportError`.
    """
    # Not at the top: pandas and Matplotlib take more than a second, and a sweep needs them at its end only.
    from reports.errors import ReportError
    from reports.report import write_report

    try:
        return write_report(folders, out, lambda line: print(f"warning: {line}", file=sys.stderr))
    except OSError as error:
        where = error.filename or out or (folders if isinstance(folders, Path) else folders[0])
        raise ReportError(
            f"{where}: the report cannot be written ({error.strerror or error}); give another folder with -o DIR"
        ) from error
