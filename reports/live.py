"""The report of one run as a page on this machine's own address, which follows a sweep while trials land.

Nothing is written into the run's folder. While the sweep goes on the page has no figures: drawing them would take
the processors from what is being measured. They come when the run is finished.
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
from reports.trial import Run, load_run

ADDRESS = "127.0.0.1"
PATIENCE = 4.0
"""A page is made anew at the earliest after so many times what the last one took: at most a fifth of a processor."""


@dataclass(frozen=True)
class _Made:
    version: str
    page: bytes
    at_s: float
    took_s: float


class LiveReport:
    """A run's page as of now. Safe to use from several threads. Raises `ReportError` for a folder that is no run."""

    def __init__(self, folder: Path) -> None:
        self._folder = real(folder)
        load_run(self._folder / "run.json")
        self._made: _Made | None = None
        self._making = threading.Lock()

    def state(self) -> dict[str, object]:
        """For the page's script: how far the sweep is, and the version of the page that `page` would give."""
        live = self._live()
        return {"version": live.version, "done": live.done, "planned": live.planned, "finished": live.finished}

    def page(self) -> bytes:
        """The page, made anew where trials have landed since."""
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
        # Attempts that are run again are trials that are not done: counted by their folders' names.
        names = {path.parent.name for path in (self._folder / "trials").glob("*/trial.json")}
        done = sum(1 for name in names if not _is_later_attempt(name, names))
        made, version = self._made, f"{len(names)}-{run.finished}"
        waits = made is not None and run.finished is None and time.monotonic() < made.at_s + PATIENCE * made.took_s
        return Live(made.version if waits and made else version, done, _planned(run), run.finished is not None)

    def _content(self, live: Live) -> Content:
        # Not at the top: pandas and Matplotlib take more than a second, which an answer to --help need not wait.
        from reports.headline import headline
        from reports.measures import trial_frame
        from reports.report import content

        try:
            runs = load_folders([self._folder])
        except ReportError as error:
            # An unfinished run without trials is no mistake.
            if live.done or live.finished:
                raise
            return Content(self._folder.name, [], [str(error)], [], [], [], [], [])
        frame = trial_frame(runs)
        with tempfile.TemporaryDirectory() as figures:
            return content(runs, frame, headline(frame), Path(figures) if live.finished else None)


def _is_later_attempt(name: str, names: set[str]) -> bool:
    first, mark, number = name.rpartition("-a")
    return bool(mark) and number.isdecimal() and first in names


def _planned(run: Run) -> int | None:
    """How many trials the sweep wants, where it wrote that down."""
    planned = run.tags.get("trials")
    return planned if isinstance(planned, int) and not isinstance(planned, bool) and planned > 0 else None


def server(live: LiveReport, port: int = 0) -> ThreadingHTTPServer:
    """Serves `live` at ``http://127.0.0.1:<server_port>/`` once `serve_forever` is called; port 0 is any free one.

    Raises `UsageError` for a port that is taken.
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
        """The page at ``/``, its state at ``/state.json``; nothing else is there."""
        # A page from elsewhere that has its name point here must not read what runs on this machine.
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
        with suppress(ConnectionError):  # a browser may leave in the middle of a page
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Nothing: the terminal belongs to whoever started this."""
