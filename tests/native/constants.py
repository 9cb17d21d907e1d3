"""What each constant of the transport's decisions is worth: the bench in virtual time with other values of it.

python tests/native/constants.py [--only NAME] [--factor 4] [--repeats 3] [--jobs N] [--write] [--table FILE]

Every numeric constant of failover/ is divided and multiplied by the factor, one at a time, in the code that ships; what
includes the file is compiled again, and ``r2ccl-explore --bench`` tells how long its scenarios take. With ``--write``
the table goes to r2ccl_core/native/wire/simulated/CONSTANTS.md, with ``--table`` to another file. About 15 minutes on
16 cores; needs what mutants.py needs.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from mutants import NATIVE, Unit, as_it_is, link

TABLE = NATIVE / "wire" / "simulated" / "CONSTANTS.md"
DEFINITION = re.compile(
    r"^\s*(?:static )?(?:inline )?constexpr (?P<type>u?int\d*(?:_t)?|size_t|double) (?P<name>k\w+) = (?P<value>[^;]+);",
    re.MULTILINE,
)
# What a peer or a file is told, or what has to be in any case.
NO_CHOICE = {"kNoMessage", "kNoHome", "kNoPath"}
LEAST_CHANGE = 1.0  # percent


@dataclass(frozen=True)
class Constant:
    """Defined once, in ``file``; ``definition`` is the whole statement."""

    name: str
    file: Path
    definition: str
    value: str

    def times(self, factor: str) -> str:
        """The statement with the value so changed, such as ``* 4``."""
        kind = self.definition[: self.definition.index(self.name)].split()[-1]
        return self.definition.replace(
            f"{self.name} = {self.value};", f"{self.name} = static_cast<{kind}>(({self.value}) {factor});"
        )


def constants() -> list[Constant]:
    """All of failover/, by file."""
    found = []
    for file in sorted((NATIVE / "failover").glob("*.*")):
        for match in DEFINITION.finditer(file.read_text()):
            if match["name"] not in NO_CHOICE:
                found.append(Constant(match["name"], file, match.group(0), match["value"]))
    return found


def bench(program: Path, repeats: int) -> dict[str, float]:
    """Milliseconds of virtual time by scenario; nothing where it did not end."""
    try:
        done = subprocess.run(
            [program, "--bench", str(repeats)], capture_output=True, text=True, check=False, timeout=600
        )
    except subprocess.TimeoutExpired:
        return {}
    return {name: float(ms) for name, ms in re.findall(r"^(\w+)\s+([\d.]+) ms", done.stdout, re.MULTILINE)}


def try_out(constant: Constant, factor: str, base: list[Unit], folder: Path, repeats: int) -> dict[str, float] | str:
    """The bench with the constant changed; why not, where it could not be run."""
    text = constant.file.read_text()
    if text.count(constant.definition) != 1:
        return "is defined twice in its file"
    own = Path(tempfile.mkdtemp(dir=folder))
    changed = own / "tree" / constant.file.relative_to(NATIVE)
    changed.parent.mkdir(parents=True)
    changed.write_text(text.replace(constant.definition, constant.times(factor)))
    objects = []
    for unit in base:
        if not unit.includes(constant.file):
            objects.append(unit.made)
            continue
        objects.append(own / unit.made.name)
        failed = unit.compile(objects[-1], own / "tree")
        if failed:
            return "does not compile: " + next((line for line in failed.splitlines() if "error" in line), failed)
    failed = link(objects, own / "r2ccl-explore")
    took = failed or bench(own / "r2ccl-explore", repeats)
    shutil.rmtree(own)
    return took or "the bench did not end"


def told(normal: dict[str, float], took: dict[str, float] | str) -> str:
    """The scenarios that take longer or less long by more than noise, the most changed first."""
    if isinstance(took, str):
        return took
    changes = []
    for name, ms in normal.items():
        if name not in took:
            changes.append((1e9, f"{name} **did not end**"))
            continue
        percent = 100 * (took[name] / ms - 1)
        if abs(percent) >= LEAST_CHANGE:
            changes.append((abs(percent), f"{name} {percent:+.0f} %"))
    return ", ".join(text for _, text in sorted(changes, reverse=True)[:6]) or "nothing"


def main() -> int:
    """Every constant, or those asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--factor", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--table", type=Path)
    options = parser.parse_args()
    every = constants()
    unknown = set(options.only) - {constant.name for constant in every}
    if unknown:
        parser.error(f"no such constant: {', '.join(sorted(unknown))}")
    chosen = [constant for constant in every if not options.only or constant.name in options.only]
    rows = []
    with as_it_is(options.jobs) as (pool, folder, base, whole):
        normal = bench(whole, options.repeats)
        factors = [f"/ {options.factor}", f"* {options.factor}"]
        futures = {
            (constant, factor): pool.submit(try_out, constant, factor, base, folder, options.repeats)
            for constant in chosen
            for factor in factors
        }
        for constant in chosen:
            cells = [told(normal, futures[constant, factor].result()) for factor in factors]
            where = constant.file.relative_to(NATIVE)
            rows.append(f"| `{constant.name}` | {constant.value} | {where} | {cells[0]} | {cells[1]} |")
            print(rows[-1], flush=True)
    table = (
        "# What the transport's constants are worth\n\n"
        "Made by `python tests/native/constants.py --write`: each constant in turn has another value, and the\n"
        "scenarios of `r2ccl-explore --bench` take so much longer (+) or less long (-); changes below "
        f"{LEAST_CHANGE:.0f} % are nothing. Virtual\ntime in ms with the values as they are, median of "
        f"{options.repeats} seeds:\n\n| scenario | ms |\n|---|---|\n"
        + "\n".join(f"| {name} | {ms:.1f} |" for name, ms in normal.items())
        + f"\n\n| constant | value | file | a {options.factor}th of it | {options.factor} times as much |\n"
        + "|---|---|---|---|---|\n"
        + "\n".join(rows)
        + "\n"
    )
    for file in ([TABLE] if options.write else []) + ([options.table] if options.table else []):
        file.write_text(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
