"""The whole way from a manifest to a report, as on CloudLab: a local cluster lists its hosts, all the rest is SSH."""

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from harness.cluster import rights
from harness.cluster.local import LocalCluster
from harness.cluster.spec import LocalSpec
from harness.commands.cli import app

SMOKE = Path(__file__).parents[2] / "experiments" / "smoke.toml"

pytestmark = [
    pytest.mark.netns,
    pytest.mark.skipif(not rights.have(), reason="needs the right to make network namespaces"),
]


def harness(*words: str, status: int = 0) -> str:
    done = CliRunner().invoke(app, list(words), prog_name="harness")
    assert done.exit_code == status, done.output
    return done.stdout


@pytest.mark.slow
def test_from_a_manifest_to_a_report(tmp_path: Path) -> None:
    manifest, hosts, runs = (str(tmp_path / name) for name in ("manifest.xml", "hosts.toml", "runs"))
    with LocalCluster(LocalSpec(name=f"way-{tmp_path.name[:20]}", hosts=2, nics=2, rate=None)) as cluster:
        said = harness("cloudlab", "manifest", "--local", cluster.tag, "-o", manifest)
        words = said.splitlines()[-1].split()[1:-1]
        harness(*words, sys.executable, "--rate", "500 Mbit/s", "-o", hosts)
        assert "2 to do" in harness("cloudlab", "setup", hosts, "--check", "--only", "rates", status=1)
        made = harness("cloudlab", "setup", hosts, "--skip", "packages")
        assert sum(line.split()[1:3] == ["rates", "made"] for line in made.splitlines()) == 2, made
        assert "0 errors" in harness("cluster", "check", "--inventory", hosts)
        fast = ["--only", "system=balance", "--set", "workload.iterations=6", "--out", runs]
        swept = harness("sweep", str(SMOKE), "--inventory", hosts, *fast)
    (run,) = Path(runs).iterdir()
    assert f"report: {run / 'report.html'}" in swept
    assert (run / "report.html").is_file()
    assert "balance" in (run / "rows.csv").read_text()
