"""The headline: what a run should achieve, what it achieved, and whether that is enough. Pure.

The targets are the project's own: healthy bandwidth near the NICs' limit, T/T0 near the model's, a short stop, a prompt
error where stopping is right, and no wrong element. What a run did not measure has no line.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from reports.headline import Line, at_largest, healthy_shares
from reports.metrics import METRICS
from reports.wording import HIT_UNTIL_REPAIR, at_size, beside, exactly, number, percent, plural

HEALTHY_SHARE = 0.90
"""Share of the sum of the NICs' rates; TCP at MTU 1500 can carry 95.6 %."""
MODEL_MARGIN = {1: 1.10, 2: 1.55 / 1.5}
"""By mode: how far T/T0 may lie above its model. Balance: 1.55 where the model gives 1.5."""
WRITE_BW_SHARE = 0.98
"""Share of the bandwidth of perftest's ib_write_bw on the same rails."""
SOFT_RDMA = ("rxe", "siw")
"""Types of RDMA devices without hardware, whose speed says nothing: their share is told and not judged."""
HIT_COST_MS = 100.0
ERROR_S = 5.0


NOTHING_MEASURED = "nothing"
"""What a bound came to that no trial measured."""


@dataclass(frozen=True)
class Target:
    """One line of the headline table."""

    what: str
    wanted: str
    measured: str
    met: bool | None
    """None: not measured, or not completely."""
    detail: str = ""
    judged: bool = True
    """Whether the measurement says anything about the target; if not, `met` is None."""

    @property
    def told(self) -> str:
        """The result in a word or two."""
        if not self.judged:
            return "not judged"
        unknown = "not measured" if self.measured == NOTHING_MEASURED else "not measured everywhere"
        return {True: "held", False: "missed", None: unknown}[self.met]


def targets(lines: Sequence[Line]) -> list[Target]:
    """Every target that applies to the table of a run (`reports.headline`). Targets are for measurements: simulated
    lines have none."""
    measured = [line for line in lines if line.source == "measured"]
    lines = [line for line in measured if not line.rdma_type]  # perftest is the limit, not what is held against it
    # If a run has only one setup or scenario, it is not named.
    healthy = healthy_shares(lines)
    found = [_healthy(setup if len(healthy) > 1 else "", lines, setup, shares) for setup, shares in healthy.items()]
    found += _of_write_bw(measured)
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
        _percent(lowest, HEALTHY_SHARE),
        lowest >= HEALTHY_SHARE,
        f"lowest system; {told}{_of(named)}",
    )


def _of_write_bw(lines: Sequence[Line]) -> Iterator[Target]:
    """What our own RDMA carries of what perftest's does, by setup and system, and on what type of device."""
    top = [line for line in at_largest(lines) if line["before_gbs"].n]
    several = len({line.scenario for line in top}) > 1
    for limit in (line for line in top if line.rdma_type):
        beside = [line for line in top if _of_one_cell(line, limit)]
        shares = {
            line.system: line["before_gbs"].median / limit["before_gbs"].median for line in beside if not line.rdma_type
        }
        for line in beside:
            if line.transport != "verbs":
                continue
            share, soft = shares[line.system], limit.rdma_type in SOFT_RDMA
            others = ", ".join(f"{name} {percent(other)}" for name, other in shares.items() if name != line.system)
            is_soft = f"{limit.rdma_type} is no hardware, so this is not judged; " if soft else ""
            yield Target(
                f"Healthy bus bandwidth of {line.system}{at_size(line.size_bytes)} over ib_write_bw's "
                f"on {limit.rdma_type} devices",
                f"at least {percent(WRITE_BW_SHARE)}",
                _percent(share, WRITE_BW_SHARE),
                None if soft else share >= WRITE_BW_SHARE,
                f"{is_soft}{limit.system} {number(limit['before_gbs'].median)} GB/s"
                + (f"; {others}" if others else "")
                + _of(limit.scenario if several else ""),
                judged=not soft,
            )


def _of_one_cell(one: Line, other: Line) -> bool:
    return (one.setup, one.scenario, one.size_bytes) == (other.setup, other.scenario, other.size_bytes)


def _slowdown(line: Line) -> Target | None:
    took = line["slowdown"]
    if line.model is None or not took.n:
        return None
    most = round(line.model * MODEL_MARGIN.get(line.mode, 1.1), 3)  # as it is told
    span = f"{number(took.low)} to {number(took.high)} over {plural(took.n, 'repeat')}" if took.n > 1 else "one trial"
    return Target(
        f"T/T0 of {line.system}{at_size(line.size_bytes)} after the loss of a NIC",
        f"at most {exactly(most)}",
        beside(took.median, most),
        took.median <= most,
        f"model {number(line.model)}; measured {span}{_of(line.case)}",
    )


def _hit_cost(lines: Sequence[Line]) -> Target | None:
    worst = _worst_loss(lines, "hit_cost_ms")
    if worst is None:
        return None
    return _within_hit_cost(
        "What the hit iteration costs beyond one after it, worst trial",
        worst.worst["hit_cost_ms"],
        f"{worst.system}{at_size(worst.size_bytes)}; its median is {number(worst['hit_cost_ms'].median)} ms",
        lines,
    )


def _stall(lines: Sequence[Line]) -> Target | None:
    """Complements the plain difference, which hides that a large hit iteration ran at full speed before the fault."""
    worst = _worst_loss(lines, "stall_ms")
    if worst is None:
        return None
    return _within_hit_cost(
        "Stall of the hit iteration that lost bandwidth does not explain, worst trial",
        worst.worst["stall_ms"],
        f"{worst.system}{at_size(worst.size_bytes)}",
        lines,
    )


def _worst_loss(lines: Sequence[Line], metric: str) -> Line | None:
    """The line with the worst single trial by `metric`, among those that lose a NIC and know it."""
    known = [line for line in lines if line.loses_nic and line.worst[metric] == line.worst[metric]]
    return max(known, key=lambda line: line.worst[metric], default=None)


def _within_hit_cost(what: str, worst_ms: float, detail: str, lines: Sequence[Line]) -> Target:
    """It is not held where trials have no such cost because what was hit lasted until the repair: theirs is no less."""
    limit, held = f"at most {HIT_COST_MS:g} ms", worst_ms <= HIT_COST_MS
    lacking = [line for line in lines if line.loses_nic and line.until_repair and not line.comes_and_goes]
    if lacking:
        first, trials = lacking[0], plural(sum(line.until_repair for line in lacking), "trial")
        detail += f"; not of {trials}, first {first.system}{at_size(first.size_bytes)}: {HIT_UNTIL_REPAIR}"
    met = None if held and lacking else held
    return Target(what, limit, f"{beside(worst_ms, HIT_COST_MS)} ms", met, detail)


def _errors(lines: Sequence[Line]) -> Iterator[Target]:
    """One line per system that stopped: how late its latest error came."""
    known = [line for line in lines if line["error_after_ms"].n]
    for system in dict.fromkeys(line.system for line in known):
        own = [line for line in known if line.system == system]
        latest_ms = max(line.worst["error_after_ms"] for line in own)
        trials = plural(sum(line["error_after_ms"].n for line in own), "trial")
        yield Target(
            f"{system}: from the fault to its error, latest trial",
            f"within {ERROR_S:g} s",
            f"{number(latest_ms)} ms" if latest_ms < 1e3 else f"{beside(latest_ms / 1e3, ERROR_S)} s",
            latest_ms <= ERROR_S * 1e3,
            f"{trials} ended with an error{_untimed(own)}",
        )


def _untimed(lines: Sequence[Line]) -> str:
    unsure = sum(line.unknown(METRICS["error_after_ms"]) for line in lines)
    return f"; of {plural(unsure, 'more trial')} it is not known when" if unsure else ""


def _wrong(lines: Sequence[Line]) -> Target | None:
    wrong, checked = sum(line.wrong for line in lines), sum(line.checked for line in lines)
    if not checked:
        return None
    return Target("Wrong elements", "0", str(wrong), wrong == 0, f"{plural(checked, 'iteration')} compared in full")


def _percent(share: float, least: float) -> str:
    """``91.3 %``, with as many digits as show on which side of `least` it lies."""
    shown = (f"{100 * share:.{digits}f}" for digits in range(1, 15))
    return f"{next(text for text in shown if (float(text) >= 100 * least) == (share >= least))} %"


def _of(case: str) -> str:
    return f"; {case}" if case else ""
