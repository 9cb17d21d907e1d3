"""r2ccl_core/PARAMETERS.md: the table of the core's environment variables, made from r2ccl_core/native/base/params.h.

python tests/parameters.py          prints the table
python tests/parameters.py --write  puts it into PARAMETERS.md
"""

import re
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
HEADER = ROOT / "r2ccl_core" / "native" / "base" / "params.h"
DOCUMENT = ROOT / "r2ccl_core" / "PARAMETERS.md"
MARK = "<!-- made from params.h: python tests/parameters.py --write -->"
_ENTRY = re.compile(
    r'X\(\s*\w+,\s*"(?P<name>\w+)",\s*(?P<default>\d+),\s*(?P<low>\d+),\s*(?P<high>\d+),\s*"(?P<meaning>[^"]*)"\s*\)'
)


_TEXT_ENTRY = re.compile(r'X\(\s*\w+,\s*"(?P<name>\w+)",\s*"(?P<default>[^"]*)",\s*"(?P<meaning>[^"]*)"\s*\)')


class Parameter(NamedTuple):
    """One line of the header."""

    name: str
    default: str
    low: str
    high: str
    meaning: str


def parameters(header: str) -> list[Parameter]:
    """What the lists in the text of params.h say, in their order; a text has no limits."""
    numbers = [Parameter(**match.groupdict()) for match in _ENTRY.finditer(_listed(header, "R2CCL_PARAMS"))]
    texts = [
        Parameter(match["name"], match["default"], "", "", match["meaning"])
        for match in _TEXT_ENTRY.finditer(_listed(header, "R2CCL_TEXT_PARAMS"))
    ]
    return [*numbers, *texts]


def _listed(header: str, name: str) -> str:
    listed = header.partition(f"#define {name}(X)")[2].partition("\n\n")[0]
    return re.sub(r'"\s*\\\n\s*"', "", listed).replace("\\\n", " ")


def table(listed: list[Parameter]) -> str:
    """The parameters as Markdown."""
    rows = [f"| `{p.name}` | {p.default} | {_limits(p)} | {p.meaning} |" for p in listed]
    return "\n".join(["| variable | default | limits | meaning |", "|---|---|---|---|", *rows]) + "\n"


def _limits(parameter: Parameter) -> str:
    return f"{parameter.low} to {parameter.high}" if parameter.high else "a text"


def written(document: str) -> str:
    """The table as the text of PARAMETERS.md has it."""
    return document.partition(MARK)[2].strip() + "\n"


if __name__ == "__main__":
    made = table(parameters(HEADER.read_text()))
    if sys.argv[1:] == ["--write"]:
        head = DOCUMENT.read_text().partition(MARK)[0]
        DOCUMENT.write_text(f"{head}{MARK}\n\n{made}")
    else:
        print(made, end="")
