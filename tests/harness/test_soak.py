"""The short form of experiments/soak.toml: random failures of every kind over continuous collectives."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.cluster import rights

SOAK = Path(__file__).parents[2] / "experiments" / "soak.toml"
SHORT = ("sweep.repeats=1", 'workload.min_duration="8 s"')


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.netns
@pytest.mark.timeout(500)
@pytest.mark.skipif(not rights.have(), reason="needs the right to make network namespaces")
def test_random_failures_leave_nothing_wrong_and_nothing_behind(tmp_path: Path) -> None:
    argv = [
        sys.executable,
        "-c",
        "from harness.commands.cli import main; main()",
        "sweep",
        str(SOAK),
        "--out",
        str(tmp_path),
    ]
    settings = [word for setting in SHORT for word in ("--set", setting)]
    done = subprocess.run([*argv, *settings], capture_output=True, text=True, timeout=400, check=False)
    trials = [json.loads(path.read_text()) for path in tmp_path.glob("*/trials/*/trial.json")]
    told = "\n".join(f"{t['trial_id']}: {t['status']}: {t['reason']}" for t in trials)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{told}"
    injections = [injection for trial in trials for injection in trial["evidence"]["strikes"]]
    assert len(trials) == 2
    assert len({injection["kind"] for injection in injections}) >= 6
    assert sum(injection["struck_iteration"] is not None for injection in injections) >= len(injections) / 3 > 5
    assert sum(i["wrong"] for trial in trials for i in trial["iterations"]) == 0
    assert all(trial["evidence"]["healed"] for trial in trials)
