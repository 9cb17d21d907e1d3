"""``harness plan``: the predicted time of every algorithm on a cluster with lost NICs, and which one to use."""

import json

from harness.commands.cluster_options import ClusterOptions, read_option, size_of
from harness.errors import ExitCode
from harness.terminal import say
from r2ccl_core.errors import UsageError
from r2ccl_core.planning.planner import as_record, explain, plan
from r2ccl_core.units import parse_duration


def plan_command(
    cluster: ClusterOptions,
    size: str = "1GiB",
    alpha: str = "20us",
    collective: str = "all_reduce",
    operations: int | None = None,
    as_json: bool = False,
) -> int:
    """Predicts every algorithm's time, compares it with the lower bound, and chooses one; see `harness plan --help`."""
    if operations is not None and operations < 0:
        raise UsageError(f"--operations {operations}: give 0 or more")
    size_bytes = size_of(size)
    alpha_s = read_option("--alpha", parse_duration, alpha)
    result = plan(cluster.topology(), collective, size_bytes, alpha_s, operations=operations)
    if as_json:
        print(json.dumps(as_record(result), indent=2))
        return ExitCode.OK
    for line in explain(result).splitlines():
        # A table: text that does not fit continues in the column of its last words.
        chosen = line.startswith(("*", "chosen:"))
        say(line, style="bold green" if chosen else "", indent=" " * 8)
    return ExitCode.OK
