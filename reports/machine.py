"""A run for other programs: a JSON summary, JUnit XML for CI, Prometheus text for a node's textfile collector.

Pure: each function takes loaded data and returns text. Names come from files, so they are escaped for each format, and
characters that XML cannot hold are replaced.
"""

import json
import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from typing import Any

from reports import machines
from reports.drift import drifts
from reports.headline import Line
from reports.load import LoadedRun
from reports.metrics import METRICS
from reports.metrics.metric import Metric
from reports.setting import experiment_name
from reports.stats import Estimate
from reports.targets import Target
from reports.trial import SCHEMA

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_UNITS = {
    "GB/s": "gigabytes_per_second",
    "tokens/s": "tokens_per_second",
    "ms": "milliseconds",
    "": "ratio",
    **{word: word for word in ("chunks", "elements", "nats", "requests", "steps", "trials")},
}
"""Every unit of a metric as Prometheus spells it, whose names have letters, digits and underscores only."""


def gauge(metric: Metric) -> str:
    """The metric's name in Prometheus: ``r2ccl_after_gigabytes_per_second``."""
    stem, unit = metric.name, _UNITS[metric.unit]
    for suffix in ("_gbs", "_tokens_s", "_ms"):
        stem = stem.removesuffix(suffix)
    return f"r2ccl_{stem}" if stem.endswith(unit) else f"r2ccl_{stem}_{unit}"


def json_summary(runs: Sequence[LoadedRun], lines: Sequence[Line], held: Sequence[Target]) -> str:
    """The table, the targets, each run's provenance and the drift of its machine as one JSON object with a schema
    version."""
    ended = [line.as_expected for line in lines if line.as_expected is not None]
    # Of an incomplete run only a trial that did not end as expected says anything.
    known = ended and not (all(ended) and any(run.incomplete for run in runs))
    summary = {
        "schema": SCHEMA,
        "as_expected": all(ended) if known else None,
        "targets": [vars(target) for target in held],
        "table": [_row(line) for line in lines],
        "runs": [_about(run) for run in runs],
        "drift": [{"run": run.name, **vars(one), "told": str(one)} for run in runs for one in drifts(run.final_trials)],
        "differences": [vars(difference) for difference in machines.differences(runs)],
    }
    return json.dumps(summary, indent=1) + "\n"


def _row(line: Line) -> dict[str, Any]:
    """What the line is about, then every metric: its estimate and worst trial, or its total."""
    maps = ("values", "estimates", "worst", "ends", "told")
    about = {name: plain(value) for name, value in vars(line).items() if name not in maps}
    return about | {name: _told(line, metric) for name, metric in METRICS.items()}


def _told(line: Line, metric: Metric) -> Any:
    if metric.aggregate == "total":
        return plain(line.told[metric.name])
    told = line[metric.name]._replace(n=line.values[metric.name])  # as in the CSV
    return plain(told) | {"worst": plain(line.worst[metric.name])}


def _about(run: LoadedRun) -> dict[str, Any]:
    return {
        "run": run.name,
        "experiment": experiment_name(run.run),
        "started": run.run.started,
        "finished": run.run.finished,
        "missing": run.missing,
        "problems": list(run.problems),
        "provenance": run.run.provenance,
    }


def junit(runs: Sequence[LoadedRun], bounds: Sequence[Sequence[Target]]) -> str:
    """One suite per run, one test case per trial: unexpected ends are failures, inconclusive trials are skipped,
    unreadable ones are errors, and so are all together that the folder does not hold, or that the sweep has not run.
    `bounds` are those of each run, a test case each: as in the sweep's exit status, a missed one is a failure; one that
    was not measured, or not completely, is skipped."""
    suites = ET.Element("testsuites")
    suites.extend(_suite(run, own) for run, own in zip(runs, bounds, strict=True))
    ET.indent(suites)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(suites, encoding="unicode") + "\n"


def _suite(loaded: LoadedRun, bounds: Sequence[Target]) -> ET.Element:
    suite = ET.Element("testsuite", name=_xml(experiment_name(loaded.run)), timestamp=_xml(loaded.run.started))
    for trial in loaded.final_trials:
        case = ET.SubElement(suite, "testcase", classname=_xml(trial.shown_system), name=_xml(trial.cell_id))
        case.set("time", f"{sum(i.duration_ns for i in trial.iterations) / 1e9:.3f}")
        if trial.status == "inconclusive":
            ET.SubElement(case, "skipped", message=_xml(trial.reason))
        elif not trial.expected:
            ET.SubElement(case, "failure", type=trial.status, message=_xml(trial.reason or trial.status))
    for bound in bounds:
        case = ET.SubElement(suite, "testcase", classname="bound", name=_xml(f"{bound.what}: {bound.wanted}"))
        came_to = _xml(f"{bound.told}: {bound.measured} ({bound.detail})")
        if bound.met is None:
            ET.SubElement(case, "skipped", message=came_to)
        elif not bound.met:
            ET.SubElement(case, "failure", type="missed", message=came_to)
    errors = [("unreadable", problem.partition(": ")[0], problem) for problem in loaded.problems]
    if loaded.run.finished is None or loaded.missing > len(loaded.problems):
        errors.append(("missing", "trials", loaded.incomplete))
    for kind, name, message in errors:
        case = ET.SubElement(suite, "testcase", classname=kind, name=_xml(name))
        ET.SubElement(case, "error", message=_xml(message))
    suite.set("tests", str(len(suite)))
    for count, result in (("errors", "error"), ("skipped", "skipped"), ("failures", "failure")):
        suite.set(count, str(len(suite.findall(f"testcase/{result}"))))
    return suite


def prometheus(runs: Sequence[LoadedRun], lines: Sequence[Line]) -> str:
    """The text exposition format, one sample per line of the table and gauge."""
    name = " and ".join(dict.fromkeys(experiment_name(run.run) for run in runs))
    samples = (*_exposition(name, lines), *_missing_samples(runs), *_drift_samples(name, runs))
    return "".join(f"{text}\n" for text in samples)


def _exposition(experiment: str, lines: Sequence[Line]) -> Iterator[str]:
    for metric in METRICS.values():
        known = [line for line in lines if line[metric.name].n]
        if known:
            yield from (f"# HELP {gauge(metric)} {metric.meaning}, {metric.aggregate}", f"# TYPE {gauge(metric)} gauge")
        for line in known:
            yield f"{gauge(metric)}{_labels(experiment, line)} {line.told[metric.name]!r}"
    known = [line for line in lines if line.as_expected is not None]
    name, meaning = "r2ccl_as_expected", "1 if every conclusive trial ended as expected"
    yield from (f"# HELP {name} {meaning}", f"# TYPE {name} gauge")
    yield from (f"{name}{_labels(experiment, line)} {int(bool(line.as_expected))}" for line in known)
    yield from _not_back_samples(experiment, [line for line in lines if line.values["repaired_ms"]])


def _not_back_samples(experiment: str, repaired: Sequence[Line]) -> Iterator[str]:
    """What the speeds after the repair of these lines are without."""
    told = (
        ("not_back", "trials that ended before their healed NIC carried again"),
        ("back_in_part", "trials to whose end some paths of their healed NIC were held back while others carried"),
    )
    for attribute, meaning in told if repaired else ():
        name = f"r2ccl_{attribute}_trials"
        yield from (f"# HELP {name} {meaning}", f"# TYPE {name} gauge")
        yield from (f"{name}{_labels(experiment, line)} {getattr(line, attribute)}" for line in repaired)


def _missing_samples(runs: Sequence[LoadedRun]) -> Iterator[str]:
    counts: dict[str, int] = {}
    for run in runs:
        name = experiment_name(run.run)
        counts[name] = counts.get(name, 0) + run.missing
    yield from (
        "# HELP r2ccl_missing_trials trials that are missing from a run's folder or cannot be read",
        "# TYPE r2ccl_missing_trials gauge",
    )
    yield from (f'r2ccl_missing_trials{{experiment="{_label(name)}"}} {count}' for name, count in counts.items())


def _drift_samples(experiment: str, runs: Sequence[LoadedRun]) -> Iterator[str]:
    found = [(run, one) for run in runs for one in drifts(run.final_trials)]
    name, meaning = "r2ccl_drift_ratio", "healthy speed at the end of the sweep over that at its beginning"
    if found:
        yield from (f"# HELP {name} {meaning}", f"# TYPE {name} gauge")
    for run, one in found:
        case = ", ".join(f"{axis} {value}" for axis, value in one.axes.items())
        system = f"{one.system} ({run.called})" if run.called else one.system
        yield f"{name}{_labelled(experiment, case, system, one.size_bytes)} {one.ratio!r}"


def _labels(experiment: str, line: Line) -> str:
    return _labelled(experiment, line.case, line.system, line.size_bytes)


def _labelled(experiment: str, case: str, system: str, size_bytes: int) -> str:
    labels = {"experiment": experiment, "case": case, "system": system, "size_bytes": str(size_bytes)}
    escaped = (f'{key}="{_label(value)}"' for key, value in labels.items())
    return "{" + ",".join(escaped) + "}"


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def plain(value: Any) -> Any:
    """JSON has no NaN: unknown values become null."""
    if isinstance(value, Estimate):
        return {name: plain(part) for name, part in value._asdict().items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _xml(text: str) -> str:
    """`text` without the characters that no XML document may hold."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
