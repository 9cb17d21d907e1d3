"""Run by test_algorithms.py in a process of its own: registers a made-up algorithm by one line, looks everywhere for
it, and prints what it found as JSON.
"""

import importlib.util
import json
import sys
from pathlib import Path

import pandas as pd

from r2ccl_core.planning import algorithms

HERE = Path(__file__).parent


def loaded(path: Path):  # type: ignore[no-untyped-def]
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


turned = loaded(HERE / "data" / "turned_ring.py").ALGORITHM
algorithms.ALGORITHMS[turned.name] = turned  # the one line

from harness.commands.cluster_options import ClusterOptions  # noqa: E402
from harness.commands.plan import plan_command  # noqa: E402
from harness.experiment.file import read  # noqa: E402
from harness.sweep.plan import plan as trials_of  # noqa: E402
from harness.sweep.simulated import simulated_record  # noqa: E402
from harness.systems.listing import lines  # noqa: E402
from r2ccl_core.gpu.__main__ import _parser  # noqa: E402
from r2ccl_core.gpu.table import Network, entries  # noqa: E402
from r2ccl_core.jobs.network import Network as JobNetwork  # noqa: E402
from r2ccl_core.jobs.network import ratio  # noqa: E402
from r2ccl_core.jobs.systems import system_named  # noqa: E402
from r2ccl_core.model.topology import Topology  # noqa: E402
from reports import model, palette  # noqa: E402
from reports.figures import choice_map, when_to_switch  # noqa: E402
from reports.reproduce import jobs, theory  # noqa: E402
from reports.setting import Setting  # noqa: E402

EXPERIMENT = {
    "name": "small",
    "cluster": {"kind": "local", "hosts": 3, "nics": 3, "rate": "500 Mbit/s"},
    "workload": {"backend": "simulate", "sizes": ["8MiB"], "iterations": 4},
    "system": [{"use": "turned"}],
    "fault": [{"kind": "nic_down", "host": "host1", "rail": 1, "at_iteration": 2, "into": 0.5}],
}


def main() -> None:
    plan_command(ClusterOptions(lost=["1:2"]), as_json=True)
    record = simulated_record(trials_of(read(EXPERIMENT, "small.toml"))[0], 1)
    setting = Setting(3, 3, 500e6)
    frame = pd.DataFrame([(8, 0.5, 1 << 20, turned.name)], columns=["hosts", "remaining", "size_bytes", "algorithm"])
    legend = choice_map.draw(frame).legends[0]
    (patch,) = legend.get_patches()
    found = {
        "systems": [line for line in lines() if line.startswith("turned:")],
        "trial": [record.status, *record.evidence.simulated["schedules"]],
        "table": [entry.rounds.name for entry in entries(Network(4, 4, 1e9), [(4, 3, 4, 4)], "turned")],
        "table_option": "turned" in _parser().format_help(),
        "job": [system_named("turned").strategy, ratio(JobNetwork(Topology.uniform(3, 3, 1e9).lost(0, 0), "turned"))],
        "model": model.of_system(record, setting, {"R2CC_ALGO": "turned"}),
        "figure": [legend.get_texts()[0].get_text(), list(patch.get_facecolor()[:3])],
        "palette": palette.COLORS[palette.own("turned").color],
        "caption": "Z Turned Ring" in when_to_switch.caption(frame),
        "reproduced": [turned.name in theory.GAP_ALGORITHMS, jobs.NAMES["turned"]],
        "document": [line for line in loaded(HERE / "parameters.py").tables("").splitlines() if "`turned`" in line],
    }
    json.dump(found, sys.stderr)


main()
