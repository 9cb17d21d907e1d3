"""``harness report``: writes the report of runs, opens it, or serves it while a sweep runs."""

import os
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from harness.errors import ExitCode
from harness.publish import publish
from r2ccl_core.errors import UsageError


def report_command(runs: Sequence[Path], out: Path | None, opened: bool, serve: bool, port: int) -> ExitCode:
    """Writes the report and prints its path; with `serve`, serves one run until Ctrl-C."""
    if serve:
        if len(runs) > 1 or out is not None:
            raise UsageError("--serve follows one run in its own folder: give one RUN and no -o")
        return _serve(runs[0], port, opened)
    if port:
        raise UsageError(f"--port {port}: is where --serve listens; add --serve, or leave it out")
    _refuse_twice(runs)
    _refuse_among_trials(runs, out)
    page = publish(runs, out)
    print(page)
    if opened and not webbrowser.open(page.absolute().as_uri()):
        raise UsageError(f"no browser was found; open {page} yourself, or set BROWSER to one")
    return ExitCode.OK


def _refuse_twice(runs: Sequence[Path]) -> None:
    from reports.load import real

    first: dict[Path, Path] = {}
    for run in runs:
        if (known := first.setdefault(real(run), run)) is not run:
            raise UsageError(f"{known} and {run} are the same; give each run once")


def _refuse_among_trials(runs: Sequence[Path], out: Path | None) -> None:
    """Raises `UsageError` if the report would be written where a run has its trials."""
    from reports.load import real

    for run in runs:
        if out is not None and real(out).is_relative_to(real(run) / "trials"):
            raise UsageError(f"-o {out}: is where {run} has its trials; choose another folder")


def _serve(run: Path, port: int, opened: bool) -> ExitCode:
    from reports.live import LiveReport, server

    # Leaves the processors to a sweep on this machine.
    os.nice(10)
    serving = server(LiveReport(run), port)
    url = f"http://127.0.0.1:{serving.server_port}/"
    print(f"{url} shows {run} until Ctrl-C", flush=True)
    try:
        if opened:
            webbrowser.open(url)
        serving.serve_forever()
    except KeyboardInterrupt:
        print("stopped")
    finally:
        serving.server_close()
    return ExitCode.OK
