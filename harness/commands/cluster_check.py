"""`harness cluster check`: examines all hosts and prints what is wrong with its remedy, as a table or as JSON."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from harness.cluster import export, inventory_file, rights, state
from harness.cluster.checks import hosts, nics, rails, rdma, versions
from harness.cluster.checks.evidence import Evidence, gather
from harness.cluster.checks.finding import Finding, Severity, merged, worst_first
from harness.cluster.factory import make_cluster
from harness.cluster.inventory import Inventory
from harness.cluster.spec import InventorySpec, LocalSpec, VmsSpec
from harness.errors import ExitCode
from harness.experiment.examples import found as found_experiment
from harness.experiment.file import load
from harness.experiment.model import Experiment
from harness.interrupt import stoppable
from harness.terminal import console, say, width
from r2ccl_core.errors import UsageError

SCHEMA = 1
"""Version of the JSON document."""

MAX_NAMES = 4
"""At most this many hosts are named in a line of the table."""

WIDTH = 140
"""Width of the table if it is written to a file."""
LEAST_OF_TABLE = 72
"""Columns of a terminal from which findings are a table; in fewer, its first three columns leave too little room."""

_STYLES = {Severity.OK: "green", Severity.NOTE: "cyan", Severity.WARNING: "yellow", Severity.ERROR: "bold red"}


def check(experiment: Path | None, changes: Sequence[str], inventory: Path | None, as_json: bool) -> ExitCode:
    """Checks the hosts of an inventory or of an experiment's cluster; status 1 if there is an error."""
    asked = None if experiment is None else load(found_experiment(experiment), changes, inventory)
    with _hosts(asked, inventory) as meant:
        seen = gather(meant, frozenset() if asked is None else _kinds(asked))
    found = judge(seen)
    if as_json:
        print(json.dumps(document(seen, found), indent=1))
    else:
        print_findings(found, len(meant.hosts))
    return ExitCode.WRONG if any(finding.severity is Severity.ERROR for finding in found) else ExitCode.OK


def judge(seen: Evidence) -> list[Finding]:
    """Every finding, the worst first. Pure."""
    return worst_first(finding for topic in (hosts, nics, rails, rdma, versions) for finding in topic.findings(seen))


def document(seen: Evidence, found: Sequence[Finding]) -> dict[str, Any]:
    """The check as JSON values: findings, and which NIC reached which."""
    counts = Counter(finding.severity for finding in found)
    return {
        "schema": SCHEMA,
        "counts": {severity.value: counts[severity] for severity in Severity},
        "findings": [
            {"severity": f.severity.value, "topic": f.topic, "host": f.host or None, "what": f.what, "remedy": f.remedy}
            for f in found
        ],
        "reach": [
            {
                "from": [probe.source.host, probe.source.nic],
                "to": [probe.target.host, probe.target.nic],
                "bytes": probe.size or None,
                "arrived_on": answer.arrived_on,
                "rtt_us": answer.rtt_us,
                "error": answer.error,
            }
            for probe, answer in seen.answers.items()
        ],
        "clocks": {
            name: {"offset_s": survey.clock_offset_s, "error_s": survey.clock_error_s}
            for name, survey in seen.surveys.items()
        },
    }


@contextmanager
def _hosts(experiment: Experiment | None, inventory: Path | None) -> Iterator[Inventory]:
    """The selected hosts, while they are up: a local cluster is brought up for the check and taken down afterwards."""
    if experiment is None:
        if inventory is None:
            raise UsageError("say which hosts: an experiment file, or --inventory HOSTS.toml")
        yield inventory_file.load(inventory)
    elif isinstance(experiment.cluster, InventorySpec):
        yield experiment.cluster.content
    elif isinstance(experiment.cluster, LocalSpec | VmsSpec):
        rights.acquire()
        spec = experiment.cluster
        with stoppable(), make_cluster(spec) as cluster:
            record = state.read(cluster.describe()["tag"])
            assert record is not None
            yield export.of_local(record, spec.python or record.python)
    else:
        raise UsageError(f"{experiment.name}: cluster.kind: noop: has no hosts to check; name an inventory")


def _kinds(experiment: Experiment) -> frozenset[str]:
    """Every kind of fault that the experiment may inject."""
    return frozenset(kind for fault in experiment.faults for kind in fault.kinds)


def print_findings(found: Sequence[Finding], count: int) -> None:
    """Prints the findings on `count` hosts as a table, the worst first, and the number of each severity."""
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    for _ in range(3):
        table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    narrow = (columns := width()) is not None and columns < LEAST_OF_TABLE
    for finding, names in merged(found):
        style, where = _STYLES[finding.severity], _names(names, count)
        if narrow:
            say(f"{finding.severity}, {finding.topic}, {where}: {finding.what}", style, indent="  ")
            if finding.remedy:
                say(f"    {finding.remedy}")
            continue
        said = f"{finding.what}\n  {finding.remedy}" if finding.remedy else finding.what
        table.add_row(Text(finding.severity, style=style), finding.topic, where, said)
    counts = Counter(finding.severity for finding in found)
    if not narrow:
        console(WIDTH).print(table)
    shown = [f"{counts[s]} {s}{'' if s is Severity.OK or counts[s] == 1 else 's'}" for s in reversed(Severity)]
    print(f"{count} host{'s' * (count != 1)}: {', '.join(shown)}")


def _names(names: Sequence[str], count: int) -> str:
    if names == [""] or (len(names) == count and "switch" not in names):
        return "all hosts"
    return ", ".join(names[:MAX_NAMES]) + (f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else "")
