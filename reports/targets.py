"""The headline: what a run should reach, what it reached, and whether that is enough. Pure.

The targets are the project's own: healthy bandwidth near the NICs' limit, T/T0 near the model's, a short
stop, a prompt error where stopping is right, and no wrong element. What a run did not measure has no line.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from reports.headline import Line, at_largest, healthy_shares
from reports.wording import at_size, number, percent, plural

HEALTHY_SHARE = 0.90
"""Of the sum of the NICs' rates; TCP at MTU 1500 can carry 95.6 %."""
MODEL_MARGIN = {1: 1.10, 2: 1.55 / 1.5}
"""By mode: how far above its model T/T0 may lie. Balance: 1.55 where the model says 1.5."""
HIT_COST_MS = 100.0
ERROR_S = 5.0


@dataclass(frozen=True)
class Target:
    """One line of the headline table."""

    what: str
    wanted: str
    measured: str
    met: bool | None
    """None: not, or not all, measured."""
    detail: str = ""


def targets(lines: Sequence[Line]) -> list[Target]:
    """Every target that the table of a run (`reports.headline`) can be held against. They are about what was
    measured: a simulated line has none."""
    lines = [line for line in lines if line.source == "measured"]
    # Where a run has one setup or scenario only, it needs no naming.
    healthy = healthy_shares(lines)
    found = [_healthy(setup if len(healthy) > 1 else "", lines, setup, shares) for setup, shares in healthy.items()]
    top = at_largest(lines)
    if len({line.case for line in lines if line.loses_nic}) <= 1:
        top = [replace(line, case="") for line in top]
    found += [_slowdown(line) for line in top]
    found += [_hit_cost(lines), _stall(lines), *_errors(lines), _wrong(lines)]
    return [target for target in found if target is not None]


def _healthy(named: str, lines: Sequence[Line], setup: str, shares: Mapping[str, float]) -> Target | None:
    lowest = min(shares.values())
    told = ", ".join(f"{system} {100 * share:.1f} %" for system, share in shares.items())
    size = max(line.size_bytes for line in lines if line.setup == setup)
    return Target(
        f"Healthy bus bandwidth{at_size(size)} over what the NICs' rate allows",
        f"at least {percent(HEALTHY_SHARE)}",
        f"{100 * lowest:.1f} %",
        lowest >= HEALTHY_SHARE,
        f"lowest system; {told}{_of(named)}",
    )


def _slowdown(line: Line) -> Target | None:
    took = line["slowdown"]
    if line.model is None or not took.n:
        return None
    most = line.model * MODEL_MARGIN.get(line.mode, 1.1)
    span = f"{number(took.low)} to {number(took.high)} over {plural(took.n, 'repeat')}" if took.n > 1 else "one trial"
    return Target(
        f"T/T0 of {line.system}{at_size(line.size_bytes)} after the loss of a NIC",
        f"at most {number(most)}",
        number(took.median),
        took.median <= most,
        f"model {number(line.model)}; measured {span}{_of(line.case)}",
    )


def _hit_cost(lines: Sequence[Line]) -> Target | None:
    known = [line for line in lines if line.loses_nic and line.worst["hit_cost_ms"] == line.worst["hit_cost_ms"]]
    if not known:
        return None
    worst = max(known, key=lambda line: line.worst["hit_cost_ms"])
    return Target(
        "What the hit iteration costs beyond one after it, worst trial",
        f"at most {HIT_COST_MS:g} ms",
        f"{number(worst.worst['hit_cost_ms'])} ms",
        worst.worst["hit_cost_ms"] <= HIT_COST_MS,
        f"{worst.system}{at_size(worst.size_bytes)}; its median is {number(worst['hit_cost_ms'].median)} ms",
    )


def _stall(lines: Sequence[Line]) -> Target | None:
    """What the plain difference can hide: a large hit iteration ran at full speed before the fault."""
    known = [line for line in lines if line.loses_nic and line.worst["stall_ms"] == line.worst["stall_ms"]]
    if not known:
        return None
    worst = max(known, key=lambda line: line.worst["stall_ms"])
    return Target(
        "Stall of the hit iteration that lost bandwidth does not explain, worst trial",
        f"at most {HIT_COST_MS:g} ms",
        f"{number(worst.worst['stall_ms'])} ms",
        worst.worst["stall_ms"] <= HIT_COST_MS,
        f"{worst.system}{at_size(worst.size_bytes)}",
    )


def _errors(lines: Sequence[Line]) -> Iterator[Target]:
    """One line a system that stopped: how late its latest error came."""
    known = [line for line in lines if line["error_after_ms"].n]
    for system in dict.fromkeys(line.system for line in known):
        own = [line for line in known if line.system == system]
        latest_ms = max(line.worst["error_after_ms"] for line in own)
        trials = plural(sum(line["error_after_ms"].n for line in own), "trial")
        yield Target(
            f"{system}: from the fault to its error, latest trial",
            f"within {ERROR_S:g} s",
            f"{number(latest_ms)} ms" if latest_ms < 1e3 else f"{number(latest_ms / 1e3)} s",
            latest_ms <= ERROR_S * 1e3,
            f"{trials} ended with an error",
        )


def _wrong(lines: Sequence[Line]) -> Target | None:
    wrong, checked = sum(line.wrong for line in lines), sum(line.checked for line in lines)
    if not checked:
        return None
    return Target("Wrong elements", "0", str(wrong), wrong == 0, f"{plural(checked, 'iteration')} compared in full")


def _of(case: str) -> str:
    return f"; {case}" if case else ""
