"""The tables of reports/SCHEMA.md: every column and every stored key with its type, from the models themselves.

python tests/schema_document.py          prints the tables
python tests/schema_document.py --write  puts them into reports/SCHEMA.md
"""

import sys
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from reports import rows, trial
from reports.metrics import METRICS

DOCUMENT = Path(__file__).resolve().parent.parent / "reports" / "SCHEMA.md"
MARK = "<!-- tables: python tests/schema_document.py --write -->"
MODELS = (trial.Run, trial.Trial, trial.Fault, trial.Iteration, trial.Evidence, trial.TrialError)


def tables() -> str:
    """The tables as Markdown."""
    parts = [f"Version {trial.SCHEMA}.", *map(_keys, MODELS), _metrics(), _columns()]
    return "\n\n".join(parts) + "\n"


def _keys(model: Any) -> str:
    lines = [f"**{model.__name__}**", "", "| key | value |", "|---|---|"]
    for name, field in model.model_fields.items():
        needed = "" if field.is_required() else ", may be missing"
        lines.append(f"| {field.alias or name} | {_type(field.annotation)}{needed} |")
    return "\n".join(lines)


def _type(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(arguments[0])
    if origin in (Union, UnionType):
        return " or ".join(map(_type, arguments))
    if origin is Literal:
        return ", ".join(map(str, arguments))
    if origin is tuple:
        return f"list of {_type(arguments[0])}"
    if origin is dict:
        return "object"
    return {type(None): "null", float: "number", str: "text"}.get(annotation, annotation.__name__)


def _metrics() -> str:
    lines = [
        '**Metrics**, by the names that bounds of experiments (`metric = "slowdown"`), rules of `harness compare`,',
        "tables and exports use. A trial that stayed inconclusive has none. The aggregate combines the repeats of a",
        "cell. If the trials of a cell should have a metric (column *for*) and none has it, it is reported as not",
        "measured.",
        "",
        "| metric | unit | better | aggregate | for | meaning |",
        "|---|---|---|---|---|---|",
    ]
    for metric in METRICS.values():
        better = metric.better or "near 1"
        lines.append(
            f"| {metric.name} | {metric.unit} | {better} | {metric.aggregate} | {metric.of} | {metric.meaning} |"
        )
    return "\n".join(lines)


def _columns() -> str:
    lines = [
        "**rows.parquet and rows.csv**, and `axis_<name>` for each axis",
        "",
        "| column | type | meaning |",
        "|---|---|---|",
    ]
    for field in rows.arrow_schema():
        lines.append(f"| {field.name} | {field.type} | {field.metadata[b'meaning'].decode()} |")
    return "\n".join(lines)


def written() -> str:
    """The tables as the document has them."""
    return DOCUMENT.read_text().partition(MARK)[2].strip() + "\n"


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        head = DOCUMENT.read_text().partition(MARK)[0]
        DOCUMENT.write_text(f"{head}{MARK}\n\n{tables()}")
    else:
        print(tables(), end="")
