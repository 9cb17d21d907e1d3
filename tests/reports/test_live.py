"""The served report: a real server on this machine's own address, asked while trials land."""

import json
import shutil
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from synthetic_run import make_run

from r2ccl_core.errors import UsageError
from reports.errors import SchemaError
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
        with urllib.request.urlopen(request, timeout=30) as answer:
            return str(answer.read().decode())

    def after(self, version: object) -> dict[str, object]:
        """The state once there is another page than that of `version`; pages are not made anew all the time."""
        for _ in range(1500):
            if (state := self.state())["version"] != version:
                return state
            time.sleep(0.02)
        raise AssertionError("the page stays as it is")

    def state(self) -> dict[str, object]:
        return dict(json.loads(self.get("/state.json")))


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path)
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_the_page_follows_the_sweep_and_has_figures_at_its_end(served: Served) -> None:
    assert "no trial has finished" in served.get()
    empty = served.state()
    assert empty | {"version": ""} == {"version": "", "done": 0, "planned": 3, "finished": False}
    served.lands()
    first = served.after(empty["version"])
    page = served.get()
    assert "1 of 3 trials" in page
    assert "1 trials of all_reduce" in page
    assert "data:image" not in page
    assert f'data-version="{first["version"]}"' in page
    while served.waiting:
        served.lands()
    served.finishes()
    last = served.after(first["version"])
    assert (last["done"], last["finished"]) == (3, True)
    assert "data:image" in served.get()


def test_nothing_is_written_into_the_run(served: Served) -> None:
    served.lands()
    served.finishes()
    served.get()
    assert sorted(path.name for path in served.folder.iterdir()) == ["run.json", "trials"]


def test_the_page_may_ask_its_own_server_only(served: Served) -> None:
    served.lands()
    assert "default-src &#39;none&#39;" in served.get()
    assert "connect-src &#39;self&#39;" in served.get()


@pytest.mark.parametrize(
    ("path", "host", "status"), [("/run.json", None, 404), ("/../run.json", None, 404), ("/", "evil.example", 403)]
)
def test_nothing_else_is_served_and_to_nobody_else(served: Served, path: str, host: str | None, status: int) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        served.get(path, host)
    assert refused.value.code == status
    refused.value.close()


def test_a_folder_that_breaks_meanwhile_is_one_line(served: Served) -> None:
    (served.folder / "run.json").write_text("{")
    with pytest.raises(urllib.error.HTTPError) as refused:
        served.get()
    assert refused.value.read().decode().count("\n") == 1
    refused.value.close()


def test_a_later_attempt_is_no_further_trial(served: Served) -> None:
    served.lands()
    (trial,) = (served.folder / "trials").iterdir()
    shutil.copytree(trial, trial.with_name(f"{trial.name}-a2"))
    assert served.state()["done"] == 1


def test_a_folder_that_is_no_run_and_a_port_that_is_taken_are_refused(served: Served, tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="give the folder of a run"):
        LiveReport(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="leave it out for a free one"):
        server(LiveReport(served.folder), served.server.server_port)
