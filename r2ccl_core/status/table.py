"""Statuses as tables for people."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from r2ccl_core.status.read import Life, ProcessStatus

_COLOURS = {"up": "green", "partial": "yellow", "held": "yellow", "down": "red", "idle": "dim"}
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def render(statuses: Sequence[ProcessStatus], events: int) -> RenderableType:
    """One block per process: its NICs, its peers, and its newest `events` events."""
    if not statuses:
        return Text("no process keeps a status file here")
    return Group(*(part for status in statuses for part in _process(status, events)))


def size(count: float) -> str:
    """Bytes as people read them."""
    unit = 0
    while count >= 1024 and unit < len(_UNITS) - 1:
        count, unit = count / 1024, unit + 1
    return f"{count:.0f} B" if unit == 0 else f"{count:.1f} {_UNITS[unit]}"


def _process(status: ProcessStatus, events: int) -> Iterable[RenderableType]:
    document = status.document
    life = "" if status.life is Life.ALIVE else f" [{status.life}: the file is left over, or of another host]"
    replayed, twice = document["replayed_chunks"], document["duplicate_chunks"]
    yield Text(
        f"{status.name}: r2ccl {document['version']}, mode {document['config']['R2CC_MODE']}, "
        f"{replayed} chunks replayed, {twice} came twice{life}",
        style="bold" if status.life is Life.ALIVE else "dim",
    )
    yield _nics(document["nics"])
    if document["peers"]:
        yield _peers(document["peers"])
    strangers = [f"{one['count']} {one['kind']}" for one in document.get("strangers", []) if one["count"]]
    if strangers:
        yield Text(f"  strangers turned away: {', '.join(strangers)}", style="yellow")
    for found in document["verdicts"]:
        if found["standing"]:
            yield Text(f"  {found['nic']} to {found['peer']}: {found['verdict']} ({found['why']})", style="red")
    for event in document["events"][-events:] if events else ():
        moment = datetime.fromtimestamp(event["t_ns"] / 1e9, UTC).strftime("%H:%M:%S.%f")[:-3]
        words = (moment, event["kind"], event["nic"], event["peer"], event["detail"])
        yield Text("  " + " ".join(word for word in words if word))
    yield Text("")


def _nics(nics: Iterable[dict[str, object]]) -> Table:
    table = Table("NIC", "address", "state", "paths", "sent", "received", "drains/s", box=None, pad_edge=True)
    for nic in nics:
        state = str(nic["state"])
        table.add_row(
            str(nic["name"]),
            str(nic["address"]),
            Text(state, style=_COLOURS.get(state, "")),
            _paths(nic),
            *(size(float(str(nic[field]))) for field in ("sent_bytes", "received_bytes", "drain_bytes_s")),
        )
    return table


def _peers(peers: Iterable[dict[str, object]]) -> Table:
    table = Table("peer", "direction", "connections", "failed", "paths", box=None, pad_edge=True)
    for peer in peers:
        words = (str(peer[field]) for field in ("peer", "direction", "connections", "failed"))
        table.add_row(*words, _paths(peer))
    return table


def _paths(entry: dict[str, object]) -> str:
    held = f" ({entry['paths_held']} held back)" if entry["paths_held"] else ""
    never = f" ({entry['paths_never_up']} never up)" if entry.get("paths_never_up") else ""
    rdma = f" ({entry['rdma_paths']} by RDMA)" if entry.get("rdma_paths") else ""
    return f"{entry['paths_up']} up{rdma}, {entry['paths_down']} down{held}{never}"
