"""The hosts' state around a fault, from their watches: one long frame that the figure draws. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeGuard

import pandas as pd

from reports.series import METRICS
from reports.trial import Trial
from reports.wording import number, plural

UNCERTAIN_NS = 5_000_000
"""A larger uncertainty of the time of effect is pointed out."""
UNCERTAIN = "not known well enough"
"""How it is pointed out."""


@dataclass(frozen=True)
class Panel:
    """One panel of the figure: the sum, or the largest, of some metrics over a host's devices, times a factor."""

    label: str
    devices: str
    """Pattern for the devices' names."""
    metrics: tuple[str, ...]
    factor: float = 1.0
    largest: bool = False
    always: bool = False
    """Shown even if it was 0 all the time."""
    usual: float | None = None
    """If set, the panel shows how many devices have another value."""
    if_changed: bool = False
    """Hidden if it stayed the same on every host."""


PANELS = (
    Panel("CPU busy (%)", r"cpu", ("busy_share",), 100, always=True),
    Panel("ranks' CPU (cores)", r"rank\d+", ("cpu_seconds",), always=True),
    Panel("TCP segments\nsent again (1/s)", r"tcp", ("segments_retransmitted",), always=True),
    Panel("NIC drops and\nerrors (1/s)", r".*", ("rx_dropped", "tx_dropped", "rx_errors", "tx_errors")),
    Panel("RDMA sent (Gbit/s)", r".+:\d+", ("port_xmit_bytes",), 8e-9),
    Panel("RDMA packets\nsent (1/s)", r".+:\d+", ("sent_pkts",)),
    Panel("RDMA ports\nnot active", r".+:\d+", ("state",), usual=4),
    Panel("RDMA GIDs", r".+:\d+", ("gids",), if_changed=True),
    Panel("GPU busy (%)", r"gpu\d+", ("busy_share",), 100, largest=True, always=True),
    Panel("PCIe of the GPUs\n(GB/s)", r"gpu\d+", ("pcie_tx_bytes", "pcie_rx_bytes"), 1e-9),
    Panel("NVLink sent\n(GB/s)", r"gpu\d+", ("nvlink_tx_bytes",), 1e-9),
)
"""A counter is shown as its rate."""


def state_frame(watched: pd.DataFrame, trial: Trial) -> pd.DataFrame:
    """Converts `watched` (`reports.series.WATCH`) to rows of panel, host, seconds (since the fault or the beginning),
    value.

    Panels without data are left out, and so are panels in which nothing happened, unless they are always shown.
    """
    zero_ns = trial.fault.t_before_ns if trial.fault else min((i.t_ns for i in trial.iterations), default=None)
    if zero_ns is None:
        zero_ns = int(watched["t_ns"].min()) if len(watched) else 0
    shown = [part for panel in PANELS if (part := _of_panel(watched, panel)) is not None]
    if not shown:
        return pd.DataFrame({"panel": [], "host": [], "seconds": [], "value": []})
    frame = pd.concat(shown, ignore_index=True)
    return frame.assign(seconds=(frame.pop("t_ns") - zero_ns) / 1e9)


def _of_panel(watched: pd.DataFrame, panel: Panel) -> pd.DataFrame | None:
    own = watched[watched["metric"].isin(panel.metrics) & watched["device"].str.fullmatch(panel.devices)]
    if panel.usual is not None:  # an unreadable device is gone
        own = own.assign(value=(own["value"] != panel.usual).astype(float))
    own = own.dropna(subset=["value"]).sort_values("t_ns", kind="stable")
    if METRICS[panel.metrics[0]].counter:
        own = _rates(own)
    if own.empty:
        return None
    # All devices of a host are read almost at once; a tick is one such round of readings.
    groups = own.groupby(["host", own["t_ns"] // 20_000_000])
    value = (groups["value"].max() if panel.largest else groups["value"].sum()) * panel.factor
    if not panel.always and not value.any():
        return None
    if panel.if_changed and (value.groupby(level=0).nunique() == 1).all():
        return None
    frame = pd.DataFrame({"t_ns": groups["t_ns"].max(), "value": value}).reset_index(level=0).reset_index(drop=True)
    return frame.assign(panel=panel.label)


def _rates(counted: pd.DataFrame) -> pd.DataFrame:
    groups = counted.groupby(["host", "device", "metric"], sort=False)
    lasted, grown = groups["t_ns"].diff(), groups["value"].diff()
    # A counter that decreases (a process that ended, a NIC that was recreated) gives no rate for that interval.
    known = (lasted > 0) & (grown >= 0)
    return counted.assign(value=1e9 * grown / lasted)[known]


def effect_text(trial: Trial, fault: int = 0) -> str | None:
    """When a fault took effect, as text: ``effect at 1.234 s ± 2.1 ms`` since the first timed iteration.

    `fault` 0 is the first fault of the trial, 1 the next.
    """
    effect = _effect(trial, fault)
    if effect is None:
        return None
    t_ns, error_ns = effect
    begin_ns = min((i.t_ns for i in trial.iterations if i.iteration >= 0), default=None)
    when = f"effect at {(t_ns - begin_ns) / 1e9:.3f} s" if begin_ns is not None else "effect known"
    text = f"{when} \N{PLUS-MINUS SIGN} {error_ns / 1e6:.1f} ms"
    return text + (f" (more than 5 ms: {UNCERTAIN})" if error_ns > UNCERTAIN_NS else "")


def effect_error_ms(trial: Trial) -> float:
    """By how much times from the first fault's effect may be wrong, if the effect is not known well enough; otherwise
    0, as where an older program recorded no uncertainty."""
    effect = _effect(trial, 0)
    # Its moment is in the middle of the interval in which it may lie; the metrics take any moment in there.
    return 2 * effect[1] / 1e6 if effect is not None and effect[1] > UNCERTAIN_NS else 0.0


def uncertain_effects(errors_ms: "pd.Series[float]") -> str:
    """In how many trials (by `effect_error_ms`) times from the fault's effect may be wrong, and by how much; empty: in
    none."""
    wrong = errors_ms[errors_ms > 0]
    if wrong.empty:
        return ""
    trials = plural(len(wrong), "trial")
    return f"the effect is {UNCERTAIN} in {trials}: times from it may be wrong by {number(wrong.max())} ms"


def _effect(trial: Trial, fault: int) -> tuple[int, int] | None:
    """The moment of a fault's effect and its uncertainty, in ns; None if they were not recorded."""
    effects = (trial.evidence.model_extra or {}).get("effects")
    effect = effects[fault] if isinstance(effects, list) and fault < len(effects) else None
    if not isinstance(effect, dict):
        return None
    t_ns, error_ns = effect.get("t_ns"), effect.get("error_ns")
    return (t_ns, error_ns) if _is_whole(t_ns) and _is_whole(error_ns) else None


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**62


def panels_of(frame: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """The panels of `frame` in their order, each with its rows."""
    for panel in PANELS:
        own = frame[frame["panel"] == panel.label]
        if len(own):
            yield panel.label, own
