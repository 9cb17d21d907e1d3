"""The served report: a real server on this machine's own address, asked while trials land."""

import shutil
import urllib.error
from collections.abc import Iterator
from pathlib import Path

import pytest
from served_run import Served

from r2ccl_core.errors import UsageError
from reports.errors import SchemaError
from reports.live import LiveReport, server


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path)
    yield made
    made.close()


def test_the_page_follows_the_sweep_and_has_figures_at_its_end(served: Served) -> None:
    assert "no trial has finished" in served.get()
    empty = served.state()
    assert empty | {"version": ""} == {"version": "", "done": 0, "planned": 3, "finished": False}
    served.lands()
    first = served.after(empty["version"])
    page = served.get()
    assert "1 of 3 trials" in page
    assert "1 trial of all_reduce" in page
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
