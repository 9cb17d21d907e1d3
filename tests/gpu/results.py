"""What a campaign found: records as JSON lines, flushed as they come, and the tables that people read."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from reports import stats

Record = dict[str, Any]
FACTORS: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda p: 2 * (p - 1) / p,
    "all_gather": lambda p: (p - 1) / p,
    "reduce_scatter": lambda p: (p - 1) / p,
    "broadcast": lambda p: 1.0,
    "sendrecv": lambda p: 1.0,
    "alltoall": lambda p: (p - 1) / p,
    "reduce": lambda p: 1.0,
    "gather": lambda p: (p - 1) / p,
    "scatter": lambda p: (p - 1) / p,
}
"""nccl-tests' bus bandwidth over the algorithm's."""


class Results:
    """Appends records to ``results.jsonl`` and tells them on standard output."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.records: list[Record] = []

    def add(self, section: str, **values: Any) -> Record:
        """One record, written at once."""
        record = {"section": section, **values}
        self.records.append(record)
        line = json.dumps(record)
        with (self.folder / "results.jsonl").open("a") as out:
            out.write(line + "\n")
        print(line[:400], flush=True)
        return record

    def write_tables(self) -> str:
        """All tables, also as ``results.md``."""
        text = tables(self.records)
        (self.folder / "results.md").write_text(text)
        return text


def bus_gbs(collective: str, nbytes: int, ranks: int, seconds: float) -> float:
    """nccl-tests' bus bandwidth in GB/s."""
    return nbytes / seconds * FACTORS[collective](ranks) / 1e9


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that so many are not above (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1)]


def lost_ms(fault: tuple[int, int], ends: Sequence[int], lengths: Sequence[int]) -> float | None:
    """What a fault cost: the longest iteration that overlaps ``fault`` beyond the median of those that do not overlap
    any... of all; nanoseconds in, milliseconds out. None when no iteration overlaps it."""
    begin, end = fault
    hit = [length for at, length in zip(ends, lengths, strict=True) if at > begin and at - length < end]
    return max(0.0, max(hit) - statistics.median(lengths)) / 1e6 if hit else None


def return_ms(lost_ns: int, repaired_ns: int, ends: Sequence[int], lengths: Sequence[int]) -> float | None:
    """From the repair on until five iterations in turn have a median within a tenth of what it was before the loss;
    nanoseconds in, milliseconds out. None when that never happened, or none ended before the loss."""
    before = [length for at, length in zip(ends, lengths, strict=True) if at < lost_ns]
    if not before:
        return None
    most = 1.1 * statistics.median(before)
    after = [(at, length) for at, length in zip(ends, lengths, strict=True) if at - length > repaired_ns]
    for index in range(len(after) - 4):
        if statistics.median(length for _, length in after[index : index + 5]) <= most:
            at, length = after[index]
            return max(0, at - length - repaired_ns) / 1e6
    return None


def switch_cost(lost_ns: int, ends: Sequence[int], lengths: Sequence[int], choices: Sequence[str]) -> dict[str, Any]:
    """How a job went from NCCL's ring to a schedule: how many iterations the ring ran after the loss, the extra
    milliseconds of the iteration that the loss hit (over those before), of the first one by the schedule (over those
    that follow), and from the loss until that one has ended; None where no schedule ran."""
    hit = next((i for i, at in enumerate(ends) if at > lost_ns), None)
    first = next((i for i in range(hit or 0, len(ends)) if choices[i] not in ("nccl", "")), None)
    if not hit or first is None or len(ends) - first < 4:
        return {"ring_iterations": None, "hit_ms": None, "first_ms": None, "until_ms": None}
    before, after = statistics.median(lengths[:hit]), statistics.median(lengths[first + 1 :])
    return {
        "ring_iterations": first - hit,
        "before_ms": before / 1e6,
        "after_ms": after / 1e6,
        "hit_ms": (lengths[hit] - before) / 1e6,
        "first_ms": (lengths[first] - after) / 1e6,
        "until_ms": (ends[first] - lost_ns) / 1e6,
    }


def latency_ratios(records: Iterable[Record], base: str, system: str) -> list[Record]:
    """Per collective and size: both systems' medians over the rounds that measured both, the ratio of `system` to
    `base`, the 95 % interval of the median of the rounds' ratios, and the least and the greatest of one round."""
    cells: dict[tuple[str, int], dict[int, dict[str, float]]] = {}
    for r in records:
        if r["section"] == "latency" and "median_s" in r:
            rounds = cells.setdefault((r["collective"], r["bytes"]), {})
            rounds.setdefault(r["round"], {})[r["system"]] = r["median_s"]
    found = []
    for (collective, nbytes), rounds in cells.items():
        pairs = [(one[base], one[system]) for one in rounds.values() if {base, system} <= one.keys()]
        if not pairs:
            continue
        base_s, system_s = (statistics.median(column) for column in zip(*pairs, strict=True))
        ratios = [theirs / ours for ours, theirs in pairs]
        low, high = stats.interval(ratios)
        found.append(
            {
                "collective": collective,
                "bytes": nbytes,
                "rounds": len(pairs),
                f"{base}_us": base_s * 1e6,
                f"{system}_us": system_s * 1e6,
                "ratio": system_s / base_s,
                "low": low,
                "high": high,
                "least": min(ratios),
                "greatest": max(ratios),
            }
        )
    return found


def tables(records: Iterable[Record]) -> str:
    """Markdown: a table per section that has something to show."""
    found = list(records)
    parts = ["# GPU campaign", *_facts(found)]
    for section, title in (("sizes", "Shaped rails"), ("unshaped", "No rate limits")):
        parts += _by_size([r for r in found if r["section"] == section and "median_s" in r], title)
    for section, title in (("degraded", "NICs lost and slowed, 256 MiB"), ("schedules", "Schedules on GPUs, 256 MiB")):
        parts += _ratios([r for r in found if r["section"] == section and "median_s" in r], title)
    parts += _several([r for r in found if r["section"] == "several" and "median_s" in r], found)
    parts += _failures([r for r in found if r["section"] in ("failures", "nccl_failures") and "outcome" in r])
    for r in (r for r in found if r["section"] == "return" and "failure" in r):
        when = "never" if r["return_ms"] is None else f"{r['return_ms']:.0f} ms after the repair"
        parts += [f"Back at full speed after a {r['failure']}: {when}; {r['wrong']} wrong elements.", ""]
    parts += _training([r for r in found if r["section"] == "ddp" and "losses" in r])
    parts += _graphs([r for r in found if r["section"] == "graphs" and "median_s" in r])
    for r in (r for r in found if r["section"] == "types" and "cases" in r):
        line = f"{r['cases']} cases of type, operation and place, run by {', '.join(r['choices'])}: {r['wrong']} wrong"
        parts += ["## Types on GPUs", "", f"{line} elements.", ""]
    for r in (r for r in found if r["section"] == "contract" and "cases" in r):
        line = f"{r['cases']} AllReduces on {r['ranks']} ranks, of communicators side by side, split, destroyed and"
        line += f" aborted: {r['wrong']} wrong elements. An abort returned after {r['abort_ms']:.0f} ms at worst."
        parts += ["## Several communicators", "", line, ""]
    for r in (r for r in found if r["section"] == "lives" and "lives" in r):
        line = f"{r['system']}: {r['lives']} on {r['ranks']} ranks, one after another: {r['wrong']} wrong elements;"
        line += f" grown by {r['grown']['descriptors']} descriptors and {r['grown']['threads']} threads at worst, by"
        line += f" {r['grown']['bytes_a_life'] / 1024:.0f} KiB for each."
        parts += ["## Communicators that come and go", "", line, ""]
    parts += _killed([r for r in found if r["section"] == "killed" and "heard_ms" in r])
    parts += _latency(found)
    errors = [r for r in found if "error" in r]
    if errors:
        parts += ["## What failed", *(f"- {r['section']}: {r['error'][:600]}" for r in errors), ""]
    return "\n".join(parts) + "\n"


def _facts(records: list[Record]) -> list[str]:
    return [
        "",
        *(f"- {k}: {v}" for r in records if r["section"] == "facts" for k, v in r.items() if k != "section"),
        "",
    ]


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return [*lines, *("| " + " | ".join(str(cell) for cell in row) + " |" for row in rows), ""]


def _by_size(records: list[Record], title: str) -> list[str]:
    if not records:
        return []
    systems = list(dict.fromkeys(r["system"] for r in records))
    cells = {(r["collective"], r["bytes"], r["system"]): r for r in records}
    rows = []
    for collective, nbytes in dict.fromkeys((r["collective"], r["bytes"]) for r in records):
        row: list[object] = [collective, nbytes]
        for system in systems:
            r = cells.get((collective, nbytes, system))
            row.append("-" if r is None else _speed(r))
        rows.append(row)
    head = ["collective", "bytes", *(f"{s}: us, GB/s bus, CPU s/GB" for s in systems)]
    return [f"## {title}", "", *_table(head, rows), _wrong(records), ""]


def _speed(r: Record) -> str:
    cpu = f"{r['cpu_s_per_gb']:.2f}" if r["bytes"] >= 1 << 20 else "-"
    return f"{r['median_s'] * 1e6:.0f}, {r['bus_gbs']:.3f}, {cpu}"


def _ratios(records: list[Record], title: str) -> list[str]:
    if not records:
        return []
    head = ["system", "state", "ran", "ms", "T/T0", "bound"]
    rows = [
        [
            r["system"],
            r["state"],
            r.get("choice") or "nccl",
            f"{r['median_s'] * 1e3:.1f}",
            f"{r['ratio']:.3f}" if r.get("ratio") else "-",
            f"{r['bound']:.3f}" if r.get("bound") else "-",
        ]
        for r in records
    ]
    return [f"## {title}", "", *_table(head, rows), _wrong(records), ""]


def _graphs(found: list[Record]) -> list[str]:
    if not found:
        return []
    lines = ["## AllReduces in graphs and groups", "", "| state | how | by | ms | wrong |", "|---|---|---|---|---|"]
    for r in found:
        by = r.get("captured", r["choice"])
        lines.append(f"| {r['state']} | {r['how']} | {by} | {r['median_s'] * 1e3:.1f} | {r['wrong']} |")
    return [*lines, ""]


def _several(records: list[Record], found: list[Record]) -> list[str]:
    """Hosts of several ranks: every state and size, by the schedules and by NCCL's ring."""
    if not records:
        return []
    ratios = {_cell(r): r for r in found if r["section"] == "several_ratio"}
    rows = []
    for r in records:
        ratio = ratios.get(_cell(r), {})
        over = f"{ratio['ratio']:.3f}" if ratio.get("ratio") else "-"
        bound = f"{ratio['bound']:.3f}" if ratio.get("bound") else "-"
        ran = [r["choice"] or "nccl", f"{r['median_s'] * 1e3:.1f}", over, bound]
        rows.append([r["system"], r["state"], r["bytes"] >> 20, *ran])
    head = ["table", "state", "MiB", "ran", "ms", "T/T0", "bound"]
    return ["## Hosts of several ranks", "", *_table(head, rows), _wrong(records), ""]


def _cell(record: Record) -> tuple[Any, ...]:
    return tuple(record[key] for key in ("system", "state", "by", "bytes"))


def _failures(records: list[Record]) -> list[str]:
    if not records:
        return []
    head = ["system", "failure", "trials", "outcome", "median ms", "p99 ms", "worst ms", "wrong elements"]

    def number(r: Record, key: str) -> str:
        return f"{r[key]:.1f}" if r.get(key) is not None else "-"

    rows = [
        [r["system"], r["failure"], r["trials"], r["outcome"]]
        + [number(r, key) for key in ("median_ms", "p99_ms", "worst_ms")]
        + [r.get("wrong", "-")]
        for r in records
    ]
    return ["## Time lost per failure", "", *_table(head, rows)]


def _latency(records: list[Record]) -> list[str]:
    ratios = [r for r in records if r["section"] == "latency_ratio"]
    if not ratios:
        return []
    lines = []
    for base, system in dict.fromkeys(map(_compared, ratios)):
        head = ["collective", "bytes", f"{base} us", f"{system} us", "ratio", "least..greatest", "rounds"]
        rows = [
            [
                r["collective"],
                r["bytes"],
                f"{r[f'{base}_us']:.1f}",
                f"{r[f'{system}_us']:.1f}",
                f"{r['ratio']:.3f}",
                f"{r['least']:.3f}..{r['greatest']:.3f}",
                r["rounds"],
            ]
            for r in ratios
            if _compared(r) == (base, system)
        ]
        lines += [*_table(head, rows), ""]
    cells = [r for r in records if r["section"] == "latency" and "median_s" in r]
    return ["## Messages, in rounds that alternate", "", *lines, _wrong(cells), ""]


def _compared(ratio: Record) -> tuple[str, str]:
    base, system = (key.removesuffix("_us") for key in ratio if key.endswith("_us"))
    return base, system


def _killed(records: list[Record]) -> list[str]:
    if not records:
        return []
    rows = [
        [r["system"], r["bytes"], r["victim"], ", ".join(map(str, r["heard_ms"])), "; ".join(r["failures"])[:300]]
        for r in records
    ]
    return ["## A rank is killed", "", *_table(["system", "bytes", "victim", "others hear, ms", "their error"], rows)]


def _training(records: list[Record]) -> list[str]:
    if not records:
        return []
    first = records[0]["losses"]
    rows = [
        [r["system"], r["state"], len(r["losses"]), f"{r['seconds']:.1f}", "yes" if r["losses"] == first else "NO"]
        for r in records
    ]
    return ["## Training", "", *_table(["system", "state", "steps", "s", "losses equal bit by bit"], rows)]


def _wrong(records: list[Record]) -> str:
    return f"Wrong elements: {sum(r.get('wrong', 0) for r in records)} in {len(records)} cells, every element checked."
