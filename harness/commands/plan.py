"""``harness plan``: the predicted time of every algorithm on a cluster with lost NICs, and which one to use."""

import json
from collections.abc import Iterator
from math import floor, log10

from harness.commands.cluster_options import ClusterOptions, alpha_of, size_of
from harness.errors import ExitCode
from harness.terminal import say, width
from r2ccl_core.errors import UsageError
from r2ccl_core.planning.planner import Candidate, Plan, as_record, plan
from r2ccl_core.units import format_size

CHOSEN = "bold green"
LEGEND = "T/T0: over the time of what is chosen without a loss; /bound: over the lower bound with it"


def plan_command(
    cluster: ClusterOptions,
    size: str = "1GiB",
    alpha: str = "20us",
    collective: str = "all_reduce",
    operations: int | None = None,
    as_json: bool = False,
) -> int:
    """Predicts every algorithm's time, compares it with the lower bound, and chooses one; see `harness plan --help`."""
    if operations is not None and operations < 1:
        raise UsageError(f"--operations {operations}: give 1 or more")
    size_bytes = size_of(size)
    alpha_s = alpha_of(alpha)
    topology = cluster.topology()
    result = plan(topology, collective, size_bytes, alpha_s, operations=operations)
    healthy = result if topology == topology.healthy else plan(topology.healthy, collective, size_bytes, alpha_s)
    if as_json:
        print(json.dumps({**as_record(result), "healthy_s": healthy.chosen.seconds}, indent=2))
        return ExitCode.OK
    cost = f"{alpha_s * 1e6:g} us a message"
    say(f"{collective} of {format_size(size_bytes)}: {topology.in_words()}, {cost}", indent="    ")
    for line, style in _lines(result, healthy.chosen.seconds, width()):
        say(line, style, indent="    ")
    say(f"chosen: {result.chosen.name}, {result.reason}", CHOSEN, indent="    ")
    say(LEGEND, indent="    ")
    return ExitCode.OK


def _lines(result: Plan, healthy_s: float, columns: int | None) -> Iterator[tuple[str, str]]:
    """Every candidate beside the bound, each with its style: a table; below its numbers the idea, where there is no
    room beside them; in words where there is none for the numbers."""
    longest = max(len(one.name) for one in result.candidates)
    head = f"  {'':{longest}}  {'time':>11}  {'T/T0':>7}  {'/bound':>7}"
    ideas = {one.name: _idea(one) for one in result.candidates}
    beside = columns is None or len(head) + 2 + max(map(len, ideas.values())) <= columns
    table = columns is None or len(head) <= columns
    if table:
        yield head, ""
    for one in result.candidates:
        mark, style = ("* ", CHOSEN) if one is result.chosen else ("  ", "")
        ratio, beyond = _over(one.seconds, healthy_s), _over(one.seconds, result.bound_s)
        if table:
            numbers = f"{_ms(one.seconds):>11}  {ratio:>7}  {beyond:>7}"
            yield f"{mark}{one.name:{longest}}  {numbers}" + (f"  {ideas[one.name]}" if beside else ""), style
        else:
            yield f"{mark}{one.name}: {_ms(one.seconds)}, T/T0 {ratio}, /bound {beyond}", style
        if not beside:
            yield f"      {ideas[one.name]}", ""
    without = f"without a loss {_ms(result.fault_free_s)}"
    if table:
        yield f"  {'bound':{longest}}  {_ms(result.bound_s):>11}  {without}", ""
    else:
        yield f"  bound: {_ms(result.bound_s)}, {without}", ""


def _idea(one: Candidate) -> str:
    parameters = " ".join(f"{key}={value}" for key, value in one.parameters.items())
    return one.idea + (f" ({parameters})" if parameters else "")


def _ms(seconds: float) -> str:
    """Milliseconds: three decimals, and more for a time that would have fewer than three digits."""
    ms = seconds * 1e3
    return f"{ms:.3f} ms" if ms >= 0.1 or not ms else f"{ms:.{2 - floor(log10(ms))}f} ms"


def _over(seconds: float, reference_s: float) -> str:
    return f"{seconds / reference_s:.3f}" if reference_s else "-"
