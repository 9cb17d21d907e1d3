"""A run of which trials land one by one, and the server that shows it: what the tests of the served page share."""

import json
import shutil
import threading
import time
import urllib.request
from pathlib import Path

from synthetic_run import make_run

from reports.live import LiveReport, server


class Served:
    """A run of which trials land one by one, and its server."""

    def __init__(self, tmp_path: Path) -> None:
        whole = make_run(tmp_path / "whole", repeats=1, sizes={1 << 20: 4}, counters=False)
        self.folder, self.waiting = tmp_path / "run", sorted((whole / "trials").iterdir())
        (self.folder / "trials").mkdir(parents=True)
        values = json.loads((whole / "run.json").read_text())
        self.write(values | {"finished": None, "tags": {"trials": 3}})
        self.server = server(LiveReport(self.folder))
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def write(self, values: dict[str, object]) -> None:
        (self.folder / "run.json").write_text(json.dumps(values))

    def lands(self) -> None:
        """One more trial is finished."""
        trial = self.waiting.pop()
        shutil.copytree(trial, self.folder / "trials" / trial.name)

    def finishes(self) -> None:
        self.write(json.loads((self.folder / "run.json").read_text()) | {"finished": "2026-09-21T10:17:31Z"})

    def get(self, path: str = "/", host: str | None = None) -> str:
        request = urllib.request.Request(self.url + path, headers={"Host": host} if host else {})
        with urllib.request.urlopen(request, timeout=200) as answer:
            return str(answer.read().decode())

    def after(self, version: object) -> dict[str, object]:
        """The state once there is another page than that of `version`; pages are not made anew all the time."""
        for _ in range(10_000):
            if (state := self.state())["version"] != version:
                return state
            time.sleep(0.02)
        raise AssertionError("the page stays as it is")

    def state(self) -> dict[str, object]:
        return dict(json.loads(self.get("/state.json")))

    def close(self) -> None:
        """Ends the server."""
        self.server.shutdown()
        self.server.server_close()
