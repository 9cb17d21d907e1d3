"""r2ccl_core/PARAMETERS.md: the tables of the core's environment variables, made from r2ccl_core/native/base/params.h,
and of its algorithms, made from their records (`r2ccl_core.planning.algorithms`).

python tests/parameters.py          prints them
python tests/parameters.py --write  puts them into PARAMETERS.md
"""

import re
import sys
from pathlib import Path
from typing import NamedTuple

from r2ccl_core.planning.algorithms import ALGORITHMS
from r2ccl_core.schedules.algorithm import Algorithm

ROOT = Path(__file__).resolve().parent.parent
HEADER = ROOT / "r2ccl_core" / "native" / "base" / "params.h"
DOCUMENT = ROOT / "r2ccl_core" / "PARAMETERS.md"
MARK = "<!-- made from code: python tests/parameters.py --write -->"
_ENTRY = re.compile(
    r'X\(\s*\w+,\s*"(?P<name>\w+)",\s*(?P<default>\d+),\s*(?P<low>\d+),\s*(?P<high>\d+),\s*"(?P<meaning>[^"]*)"\s*\)'
)
_TEXT_ENTRY = re.compile(r'X\(\s*\w+,\s*"(?P<name>\w+)",\s*"(?P<default>[^"]*)",\s*"(?P<meaning>[^"]*)"\s*\)')
_OTHER_ENTRY = re.compile(r'X\(\s*"(?P<name>\w+)",\s*"(?P<reader>[^"]*)",\s*"(?P<meaning>[^"]*)"\s*\)')


class Parameter(NamedTuple):
    """One line of the header about the transport."""

    name: str
    default: str
    low: str
    high: str
    meaning: str


class Other(NamedTuple):
    """One line of the header about what the transport does not read."""

    name: str
    reader: str
    meaning: str


def parameters(header: str) -> list[Parameter]:
    """What the lists in the text of params.h say, in their order; a text has no limits."""
    numbers = [Parameter(**match.groupdict()) for match in _ENTRY.finditer(_listed(header, "R2CCL_PARAMS"))]
    texts = [
        Parameter(match["name"], match["default"], "", "", match["meaning"])
        for match in _TEXT_ENTRY.finditer(_listed(header, "R2CCL_TEXT_PARAMS"))
    ]
    return [*numbers, *texts]


def others(header: str) -> list[Other]:
    """The rest of the variables."""
    return [Other(**match.groupdict()) for match in _OTHER_ENTRY.finditer(_listed(header, "R2CCL_OTHER_PARAMS"))]


def _listed(header: str, name: str) -> str:
    listed = header.partition(f"#define {name}(X)")[2].partition("\n\n")[0]
    return re.sub(r'"\s*\\\n\s*"', "", listed).replace("\\\n", " ")


def tables(header: str) -> str:
    """All of them as Markdown."""
    return "\n".join(
        [
            "## Variables of programs and of NCCL\n",
            "| variable | read by | meaning |",
            "|---|---|---|",
            *(f"| `{o.name}` | {o.reader} | {o.meaning} |" for o in others(header)),
            "\n## Variables of the transport\n",
            "Read by the plugin and by the CPU runtime; whole numbers unless stated otherwise.\n",
            "| variable | default | limits | meaning |",
            "|---|---|---|---|",
            *(f"| `{p.name}` | {p.default} | {_limits(p)} | {p.meaning} |" for p in parameters(header)),
            "\n## Algorithms\n",
            "The algorithms of AllReduce, by their value of `R2CC_ALGO`. *After a loss*: until then the ring runs.\n",
            "| `R2CC_ALGO` | schedule | what it does | runs | over NCCL |",
            "|---|---|---|---|---|",
            *(f"| `{a.alias}` | {a.name} | {_told(a)} |" for a in ALGORITHMS.values() if a.alias),
            "",
        ]
    )


def _told(algorithm: Algorithm) -> str:
    runs = "after a loss" if algorithm.follows_health else "from the start"
    if algorithm.keeps_small_on_ring:
        runs += ", from `R2CC_AR_MIN_BYTES` on"
    sure = "; its time is guaranteed" if algorithm.guaranteed else ""
    return f"{algorithm.title}: {algorithm.idea}{sure} | {runs} | {'yes' if algorithm.on_gpu else 'no'}"


def _limits(parameter: Parameter) -> str:
    return f"{parameter.low} to {parameter.high}" if parameter.high else "a text"


def written(document: str) -> str:
    """The tables as the text of PARAMETERS.md has them."""
    return document.partition(MARK)[2].strip() + "\n"


if __name__ == "__main__":
    made = tables(HEADER.read_text())
    if sys.argv[1:] == ["--write"]:
        head = DOCUMENT.read_text().partition(MARK)[0]
        DOCUMENT.write_text(f"{head}{MARK}\n\n{made}")
    else:
        print(made, end="")
