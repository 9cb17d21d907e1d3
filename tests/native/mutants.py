"""Mistakes planted in the transport that ships, one at a time, and whether the explorer finds each.

python tests/native/mutants.py [--only NAME] [--seconds 60] [--jobs N] [--write] [--table FILE]

Each mutant of planted.py is one change of one file. What includes that file is compiled again and linked with the rest,
then the explorer looks at fresh seeds on one core until a rule is broken. A mutant that seeds do not meet within a
minute, such as one whose gap lasts for microseconds, names the unit test that is run instead. Needs cmake (with make or
ninja), g++ and GoogleTest, and no network; as many mutants at a time as there are jobs, all processors by default:
about six minutes on 16 cores. With ``--write`` the rows go to r2ccl_core/native/wire/simulated/MUTANTS.md, with
``--table`` to another file, each as soon as it is known; rows of mutants that were not tried stay as they are. Exit
status 1: a mutant survived, or one does not apply to the code any more.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from planted import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parents[2]
NATIVE = ROOT / "r2ccl_core" / "native"
TABLE = NATIVE / "wire" / "simulated" / "MUTANTS.md"


@dataclass(frozen=True)
class Unit:
    """A file to compile: ``command`` without what it makes, and where ``made`` lies in the unchanged build.

    ``target``: core, simulated, explore or tests.
    """

    target: str
    source: Path
    command: list[str]
    made: Path

    def includes(self, file: Path) -> bool:
        """Whether a change of ``file`` is one of what this makes."""
        needed = self.made.with_suffix(".d").read_text().replace("\\\n", " ").split()
        return str(file) in needed

    def compile(self, made: Path, first: Path | None = None) -> str:
        """The compiler's last words where it failed, else nothing; files of ``first`` stand for those of the tree."""
        command = [*self.command]
        if first is not None:
            at = next(i for i, word in enumerate(command) if word.startswith("-"))
            command[at:at] = ["-I", str(first)]
            changed = first / self.source.relative_to(NATIVE)
            if changed.exists():
                command = [str(changed) if word == str(self.source) else word for word in command]
        command += ["-MD", "-MF", str(made.with_suffix(".d")), "-o", str(made)]
        return run(command)


def run(command: list[str]) -> str:
    """Its last words where it failed, else nothing."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else (done.stdout + done.stderr)[-2000:] or f"{command[0]} failed"


def units(folder: Path) -> list[Unit]:
    """What r2ccl-explore and the unit tests that mutants name are made of, as the project's own build compiles it."""
    missing = [tool for tool in ("cmake", "g++") if shutil.which(tool) is None]
    if missing or not (shutil.which("make") or shutil.which("ninja")):
        sys.exit(f"{', '.join(missing) or 'make or ninja'}: not found; install it, or add its folder to PATH")
    generator = [] if shutil.which("make") else ["-G", "Ninja"]
    words = [
        "-DR2CCL_PYTHON=OFF",
        "-DR2CCL_CUDA=OFF",
        "-DR2CCL_TESTS=ON",
        "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
        "-DCMAKE_BUILD_TYPE=Release",
    ]
    failed = run(["cmake", *generator, "-S", str(NATIVE), "-B", str(folder / "cmake"), *words])
    if failed:
        sys.exit(f"cmake could not configure {NATIVE}:\n{failed}")
    tests = ["^TEST(?:_F)?\\({}, {}\\)".format(*mutant.test.split(".")) for mutant in MUTANTS if mutant.test]
    shared = ("pair.cc", "relay.cc")  # what tests have in common
    found = []
    for entry in json.loads((folder / "cmake" / "compile_commands.json").read_text()):
        source = Path(entry["file"])
        target = re.search(r"CMakeFiles/r2ccl_(core|simulated|explore|tests)\.dir/", entry["command"])
        if target is None:
            continue
        text = source.read_text()
        wanted = source.name in shared or any(re.search(test, text, re.MULTILINE) for test in tests)
        if target.group(1) == "tests" and not wanted:
            continue
        command = shlex.split(entry["command"])
        at = command.index("-o")
        del command[at : at + 2]
        made = folder / (str(source.relative_to(NATIVE)).replace("/", "_") + ".o")
        found.append(Unit(target.group(1), source, command, made))
    return found


def parts(base: list[Unit], test: str) -> list[Unit]:
    """Those of the program that looks: the unit tests where one is named, else r2ccl-explore."""
    common = ("core", "simulated")
    return [unit for unit in base if unit.target in common or (unit.target == "tests") == bool(test)]


def link(objects: list[Path], program: Path, test: str = "") -> str:
    """The linker's last words where it failed, else nothing."""
    libraries = ["-lgtest", "-lgtest_main"] if test else []
    return run(["g++", *map(str, objects), "-o", str(program), "-pthread", *libraries])


@contextmanager
def as_it_is(jobs: int) -> Iterator[tuple[ThreadPoolExecutor, Path, list[Unit]]]:
    """The code as it is, compiled in a temporary folder: threads for more, the folder and its units."""
    with tempfile.TemporaryDirectory(prefix="r2ccl-changed-") as temporary, ThreadPoolExecutor(jobs) as pool:
        folder = Path(temporary)
        base = units(folder)
        for failed in pool.map(lambda unit: unit.compile(unit.made), base):
            if failed:
                sys.exit(f"the code as it is does not compile:\n{failed}")
        yield pool, folder, base


@dataclass(frozen=True)
class Finding:
    """What became of a mutant: ``what`` broke (nothing: it survived), or ``failed`` says why it was not tried."""

    mutant: Mutant
    what: str = ""
    runs: int = 0
    seconds: float = 0
    failed: str = ""

    def line(self) -> str:
        """For the terminal."""
        if self.failed:
            return f"{self.mutant.name}: {self.failed}"
        return f"{self.mutant.name}: {self.what or 'SURVIVED'} ({self.runs} runs, {self.seconds:.1f} s)"

    def row(self) -> str:
        """For the table."""
        what = self.failed.splitlines()[0] if self.failed else self.what or "**survived**"
        cells = [
            f"`{self.mutant.name}`",
            self.mutant.what,
            self.mutant.file,
            what,
            str(self.runs),
            f"{self.seconds:.1f}",
        ]
        return "| " + " | ".join(cells) + " |"


def look(program: Path, test: str, seconds: float) -> tuple[str, int, float]:
    """What broke (nothing: it survived), after how many runs and seconds."""
    return run_test(program, test, seconds) if test else explore(program, seconds)


def explore(program: Path, seconds: float) -> tuple[str, int, float]:
    """The same by seeds."""
    begin = time.monotonic()
    command = [str(program), "--seconds", str(seconds), "--jobs", "1", "--no-shrink"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds + 60)
    except subprocess.TimeoutExpired:
        return "a run never ended", 0, time.monotonic() - begin
    elapsed = time.monotonic() - begin
    runs = re.search(r"^(\d+) runs", done.stdout, re.MULTILINE)
    count = int(runs.group(1)) if runs else 0
    if done.returncode == 0:
        return "", count, elapsed
    broken = re.search(r"^BROKEN: (.*)$", done.stdout, re.MULTILINE)
    what = broken.group(1) if broken else f"it crashed (status {done.returncode})"
    what = re.sub(r": flow .*", "", what)
    return re.sub(r"\d+", "N", what).rstrip(), count, elapsed


def run_test(program: Path, test: str, seconds: float) -> tuple[str, int, float]:
    """The same by a unit test."""
    begin = time.monotonic()
    try:
        command = [str(program), f"--gtest_filter={test}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds)
    except subprocess.TimeoutExpired:
        return f"the test {test} never ended", 1, time.monotonic() - begin
    if "Running 1 test " not in done.stdout:
        sys.exit(f"{test}: no unit test has this name")
    return "" if done.returncode == 0 else f"the test {test} failed", 1, time.monotonic() - begin


def try_out(mutant: Mutant, base: list[Unit], folder: Path, seconds: float) -> Finding:
    """Plants it, compiles what it changes, and looks for it."""
    original = NATIVE / mutant.file
    text = original.read_text()
    if text.count(mutant.old) != 1:
        return Finding(mutant, failed=f"does not apply to {mutant.file}")
    own = folder / mutant.name
    changed = own / "tree" / mutant.file
    changed.parent.mkdir(parents=True)
    changed.write_text(text.replace(mutant.old, mutant.new))
    objects = []
    for unit in parts(base, mutant.test):
        if not unit.includes(original):
            objects.append(unit.made)
            continue
        objects.append(own / unit.made.name)
        failed = unit.compile(objects[-1], own / "tree")
        if failed:
            return Finding(mutant, failed=f"does not compile\n{failed}")
    program = own / "changed"
    failed = link(objects, program, mutant.test)
    if failed:
        return Finding(mutant, failed=f"does not link\n{failed}")
    what, runs, elapsed = look(program, mutant.test, seconds)
    shutil.rmtree(own)
    return Finding(mutant, what, runs, elapsed)


def known_rows(file: Path) -> dict[str, str]:
    """What a table says already, by mutant."""
    lines = file.read_text().splitlines() if file.exists() else []
    return {found.group(1): line for line in lines if (found := re.match(r"\| `(\w+)` \|", line))}


def table(rows: dict[str, str]) -> str:
    """As Markdown, in the order of MUTANTS."""
    return (
        "# Mistakes planted in the transport, and what found them\n\n"
        "Made by `python tests/native/mutants.py --write`: one change at a time in the code that ships, then fresh "
        "seeds of\n`r2ccl-explore` on one core until a rule was broken, or the unit test that is named.\n\n"
        "| mutant | what it does wrong | file | what was found | runs until then | seconds |\n"
        "|---|---|---|---|---|---|\n" + "".join(rows[one.name] + "\n" for one in MUTANTS if one.name in rows)
    )


def try_all(
    mutants: list[Mutant], files: list[Path], pool: ThreadPoolExecutor, try_it: Callable[[Mutant], Finding]
) -> list[Finding]:
    """Tells and writes each finding as soon as it is known: who ends this halfway has what was found until then."""
    rows = {file: known_rows(file) for file in files}
    findings = []
    for future in as_completed([pool.submit(try_it, mutant) for mutant in mutants]):
        findings.append(finding := future.result())
        print(f"{len(findings)} of {len(mutants)}: {finding.line()}", flush=True)
        for file in files:
            rows[file][finding.mutant.name] = finding.row()
            file.write_text(table(rows[file]))
    return findings


def main() -> int:
    """Every mutant, or those asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--table", type=Path)
    options = parser.parse_args()
    unknown = set(options.only) - {mutant.name for mutant in MUTANTS}
    if unknown:
        parser.error(f"no such mutant: {', '.join(sorted(unknown))}")
    mutants = [mutant for mutant in MUTANTS if not options.only or mutant.name in options.only]
    with as_it_is(options.jobs) as (pool, folder, base):
        for test in sorted({mutant.test for mutant in mutants}):
            program = folder / ("tests" if test else "r2ccl-explore")
            broken = link([unit.made for unit in parts(base, test)], program, test) or look(program, test, 5)[0]
            if broken:
                sys.exit(f"the code as it is breaks a rule: {broken}")
        files = ([TABLE] if options.write else []) + ([options.table] if options.table else [])
        findings = try_all(mutants, files, pool, lambda mutant: try_out(mutant, base, folder, options.seconds))
    return 1 if any(finding.failed or not finding.what for finding in findings) else 0


if __name__ == "__main__":
    sys.exit(main())
