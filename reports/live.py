"""Serves the report of one run as a page on the loopback address; the page follows a sweep as trials finish.

Nothing is written into the run's folder. During the sweep the page has no figures, since drawing them would take
processor time from the measurement. They appear when the run is finished.
"""

import json
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from r2ccl_core.errors import UsageError
from reports.errors import ReportError
from reports.load import load_folders, real
from reports.page import Content, Live, html
from reports.trial import load_run

ADDRESS = "127.0.0.1"
PATIENCE = 4.0
"""The page is rebuilt no sooner than this many times the duration of the last build: at most a fifth of a processor."""


@dataclass(frozen=True)
class _Made:
    version: str
    page: bytes
    at_s: float
    took_s: float


class LiveReport:
    """The current page of a run. Thread-safe. Raises `ReportError` for a folder that is no run."""

    def __init__(self, folder: Path) -> None:
        self._folder = real(folder)
        load_run(self._folder / "run.json")
        self._made: _Made | None = None
        self._making = threading.Lock()

    def state(self) -> dict[str, object]:
        """For the page's script: the progress of the sweep, and the version of the page that `page` would return."""
        live = self._live()
        return {"version": live.version, "done": live.done, "planned": live.planned, "finished": live.finished}

    def page(self) -> bytes:
        """The page, rebuilt if trials have finished since the last call."""
        with self._making:
            live = self._live()
            if self._made is None or self._made.version != live.version:
                began_s = time.monotonic()
                text = html(self._content(live), live).encode("utf-8", "replace")
                ended_s = time.monotonic()
                self._made = _Made(live.version, text, ended_s, ended_s - began_s)
            return self._made.page

    def _live(self) -> Live:
        run = load_run(self._folder / "run.json")
        # Attempts that will run again are not finished trials; trials are counted by the names of their folders.
        names = {path.parent.name for path in (self._folder / "trials").glob("*/trial.json")}
        done = sum(1 for name in names if not _is_later_attempt(name, names))
        made, version = self._made, f"{len(names)}-{run.finished}"
        waits = made is not None and run.finished is None and time.monotonic() < made.at_s + PATIENCE * made.took_s
        return Live(made.version if waits and made else version, done, run.planned, run.finished is not None)

    def _content(self, live: Live) -> Content:
        # Not at the top of the file: pandas and Matplotlib take more than a second to import, and --help should not
        # wait for them.
        from reports.headline import headline
        from reports.measures import trial_frame
        from reports.report import content

        try:
            runs = load_folders([self._folder])
        except ReportError as error:
            # An unfinished run without trials is not an error.
            if live.done or live.finished:
                raise
            return Content(self._folder.name, [], [str(error)], [], [], [], [], [])
        frame = trial_frame(runs)
        with tempfile.TemporaryDirectory() as figures:
            return content(runs, frame, headline(frame), Path(figures) if live.finished else None)


def _is_later_attempt(name: str, names: set[str]) -> bool:
    first, mark, number = name.rpartition("-a")
    return bool(mark) and number.isdecimal() and first in names


def server(live: LiveReport, port: int = 0) -> ThreadingHTTPServer:
    """Serves `live` at ``http://127.0.0.1:<server_port>/`` once `serve_forever` is called; port 0 picks any free port.

    Raises `UsageError` if the port is taken.
    """

    class Handler(_Handler):
        report = live

    try:
        return _Server((ADDRESS, port), Handler)
    except OSError as error:
        raise UsageError(
            f"--port {port}: cannot be served on ({error.strerror}); leave it out for a free one"
        ) from None


class _Server(ThreadingHTTPServer):
    daemon_threads = True


class _Handler(BaseHTTPRequestHandler):
    report: LiveReport

    def do_GET(self) -> None:
        """The page at ``/`` and its state at ``/state.json``; nothing else exists."""
        # Protects against DNS rebinding: a foreign page whose name resolves to this machine must not read the report.
        port = self.connection.getsockname()[1]
        if self.headers.get("Host") not in (f"{ADDRESS}:{port}", f"localhost:{port}"):
            self._answer(HTTPStatus.FORBIDDEN, "text/plain", b"this server answers to its own name only\n")
            return
        try:
            if self.path == "/":
                self._answer(HTTPStatus.OK, "text/html", self.report.page())
            elif self.path == "/state.json":
                self._answer(HTTPStatus.OK, "application/json", json.dumps(self.report.state()).encode())
            else:
                self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"there is only /\n")
        except ReportError as error:
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain", f"{error}\n".encode("utf-8", "replace"))

    def _answer(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        with suppress(ConnectionError):  # a browser may disconnect at any time
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Logs nothing: the terminal belongs to the user who started the server."""
