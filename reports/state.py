"""The hosts' state around a fault, from their watches: one long frame that the figure draws. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from reports.series import METRICS
from reports.trial import Trial


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


def panels_of(frame: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """The panels of `frame` in their order, each with its rows."""
    for panel in PANELS:
        own = frame[frame["panel"] == panel.label]
        if len(own):
            yield panel.label, own
