"""What each constant of the transport's decisions is worth: the bench in virtual time with other values of it.

python tests/native/constants.py [--only NAME] [--factor 4] [--repeats 3] [--jobs N] [--write] [--table FILE]

Every numeric constant of failover/ is divided and multiplied by the factor, one at a time, in the code that ships.
Where neither changes anything, it is also all but zero and all but without limit, which tells whether its rule is worth
anything at all. The code is compiled once, with each constant replaced by a variable that ``R2CCL_CONSTANT`` sets when
r2ccl-explore starts; what ships knows nothing of that. With the values as they are, that program has to take exactly
as long as the one that ships, or the table is not made.

With ``--write`` the table goes to r2ccl_core/native/wire/simulated/CONSTANTS.md, with ``--table`` to another file. Rows
of constants that were not tried stay as they are; ``--only`` needs the same repeats and factor as these.
Needs what mutants.py needs. Exit status: 1 a constant could not be tried out, 2 an option is wrong.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from mutants import NATIVE, ROOT, run

TABLE = NATIVE / "wire" / "simulated" / "CONSTANTS.md"
FOLDER = "failover"
DEFINITION = re.compile(
    r"^(?P<scope> *(?:static )?(?:inline )?)constexpr (?P<type>u?int\d*(?:_t)?|size_t|double) (?P<name>k\w+) ="
    r"(?P<value>[^;]+);",
    re.MULTILINE,
)
FUNCTION = re.compile(r"^( *)constexpr (?=[\w:<>*& ]+\()", re.MULTILINE)
# What a peer or a file is told, or what has to be in any case.
NO_CHOICE = {"kNoMessage", "kNoHome", "kNoPath", "kSecondNs", "kNever"}
LEAST_CHANGE = 1.0  # percent
ALL_BUT_ZERO, ALL_BUT_ENDLESS = 1e-6, 1e6
TUNED = """\
// A constant of failover/ that R2CCL_CONSTANT="FILE:NAME FACTOR" multiplies: in the copy that constants.py compiles.
#ifndef R2CCL_FAILOVER_TUNED_H_
#define R2CCL_FAILOVER_TUNED_H_

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <string>

namespace r2ccl {

template <typename T>
T Tuned(const char* name, T value) {
  const char* text = std::getenv("R2CCL_CONSTANT");
  std::string wanted = text == nullptr ? "" : text;
  size_t space = wanted.find(' ');
  if (space == std::string::npos || wanted.compare(0, space, name) != 0) return value;
  double changed = static_cast<double>(value) * std::strtod(wanted.c_str() + space, nullptr);
  // Times are added to others.
  double most = sizeof(T) < 8 ? static_cast<double>(std::numeric_limits<T>::max() / 4) : 1e16;
  // Of a whole number all but nothing is one: something may be divided by it.
  if (std::numeric_limits<T>::is_integer && value >= 1) changed = std::max(changed, 1.0);
  return static_cast<T>(std::min(changed, most));
}

}  // namespace r2ccl

#endif  // R2CCL_FAILOVER_TUNED_H_
"""


@dataclass(frozen=True)
class Constant:
    """Defined once, in ``file`` of failover/."""

    name: str
    file: str
    value: str

    @property
    def key(self) -> str:
        """As R2CCL_CONSTANT has it."""
        return f"{self.file}:{self.name}"


def constants() -> list[Constant]:
    """All of failover/, by file."""
    found = []
    for file in sorted((NATIVE / FOLDER).glob("*.*")):
        for match in DEFINITION.finditer(file.read_text()):
            if match["name"] not in NO_CHOICE:
                found.append(Constant(match["name"], file.name, " ".join(match["value"].split())))
    return found


def known_rows(file: Path) -> dict[tuple[str, str], str]:
    """What a table says already, by constant and its value."""
    found = re.findall(r"^(\| `(k\w+)` \| (.+?) \| ([\w.]+) \|.*)$", file.read_text() if file.exists() else "", re.M)
    return {(f"{where}:{name}", value): row for row, name, value, where in found}


def adjustable(text: str, file: str) -> str:
    """The file with a variable in place of each of its constants."""

    def variable(match: re.Match[str]) -> str:
        if match["name"] in NO_CHOICE:
            return match.group(0)
        words = match["scope"].split()
        local = match["scope"].startswith(" ") and "static" not in words
        kind = "static" if local else ("static inline" if "static" in words else "inline")
        indent = match["scope"][: len(match["scope"]) - len(match["scope"].lstrip(" "))]
        made = f'r2ccl::Tuned<{match["type"]}>("{file}:{match["name"]}", {match["value"].strip()})'
        return f"{indent}{kind} const {match['type']} {match['name']} = {made};"

    changed = FUNCTION.sub(r"\1inline ", DEFINITION.sub(variable, text))
    if changed == text:
        return text
    at = changed.index("#include")
    return changed[:at] + '#include "failover/tuned.h"\n' + changed[at:]


def build(native: Path, into: Path, jobs: int) -> Path:
    """R2ccl-explore of that tree."""
    words = ["-DR2CCL_PYTHON=OFF", "-DR2CCL_CUDA=OFF", "-DCMAKE_BUILD_TYPE=Release"]
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    failed = run(["cmake", *generator, "-S", str(native), "-B", str(into), *words])
    failed = failed or run(["cmake", "--build", str(into), "--target", "r2ccl_explore", "-j", str(jobs)])
    if failed:
        sys.exit(f"{native} does not compile:\n{failed}")
    return into / "r2ccl-explore"


def build_adjustable(folder: Path, jobs: int) -> Path:
    """The same of the code with variables for constants."""
    tree = folder / "r2ccl_core" / "native"
    shutil.copytree(NATIVE, tree)
    shutil.copy(ROOT / "pyproject.toml", folder)
    for file in sorted((tree / FOLDER).glob("*.*")):
        file.write_text(adjustable(file.read_text(), file.name))
    (tree / FOLDER / "tuned.h").write_text(TUNED)
    return build(tree, folder / "adjustable", jobs)


def bench(program: Path, repeats: int, constant: str = "") -> dict[str, float]:
    """Milliseconds of virtual time by scenario; nothing where it did not end."""
    command = [str(program), "--bench", str(repeats)]
    environment = {**os.environ, "R2CCL_CONSTANT": constant}
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1800, env=environment)
    except subprocess.TimeoutExpired:
        return {}
    return {name: float(ms) for name, ms in re.findall(r"^(\w+)\s+([\d.]+) ms", done.stdout, re.MULTILINE)}


def changes(normal: dict[str, float], took: dict[str, float]) -> list[tuple[float, str]]:
    """By how many percent scenarios take longer or less long, the most changed first; but for noise."""
    found = []
    for name, ms in normal.items():
        percent = 100 * (took[name] / ms - 1) if name in took else float("inf")
        if abs(percent) >= LEAST_CHANGE:
            found.append((percent, name))
    return sorted(found, key=lambda change: (-abs(change[0]), change[1]))


def told(found: list[tuple[float, str]], rows: int = 4) -> str:
    """For a cell of the table."""
    texts = [f"{name} {percent:+.0f} %" if percent < 1e9 else f"{name} **did not end**" for percent, name in found]
    more = [f"{len(texts) - rows} more"] if len(texts) > rows else []
    return ", ".join(texts[:rows] + more) or "nothing"


def rows(
    program: Path, chosen: list[Constant], normal: dict[str, float], factor: int, repeats: int, jobs: int
) -> dict[tuple[str, str], str]:
    """For each constant its changes by factor, as a row of the table."""

    def tried(constant: Constant, times: float) -> list[tuple[float, str]]:
        return changes(normal, bench(program, repeats, f"{constant.key} {times!r}"))

    with ThreadPoolExecutor(jobs) as pool:
        usual = {
            (constant, times): pool.submit(tried, constant, times)
            for constant in chosen
            for times in (1 / factor, factor)
        }
        extreme = {}
        for constant in chosen:
            if not any(usual[constant, times].result() for times in (1 / factor, factor)):
                for times in (ALL_BUT_ZERO, ALL_BUT_ENDLESS):
                    extreme[constant, times] = pool.submit(tried, constant, times)
        found = {}
        for constant in chosen:
            cells = [told(usual[constant, times].result()) for times in (1 / factor, factor)]
            if (constant, ALL_BUT_ZERO) in extreme:
                none, endless = (extreme[constant, times].result() for times in (ALL_BUT_ZERO, ALL_BUT_ENDLESS))
                cells = [f"nothing; all but zero: {told(none)}", f"nothing; all but endless: {told(endless)}"]
            row = f"| `{constant.name}` | {constant.value} | {constant.file} | {cells[0]} | {cells[1]} |"
            found[constant.key, constant.value] = row
            print(row, flush=True)
    return found


def table(
    every: list[Constant], rows: dict[tuple[str, str], str], normal: dict[str, float], factor: int, repeats: int
) -> str:
    """As Markdown, in the order of the code."""
    measured = [rows[key] for constant in every if (key := (constant.key, constant.value)) in rows]
    return (
        "# What the transport's constants are worth\n\n"
        f"Made by `python tests/native/constants.py --repeats {repeats} --write`: each constant in turn has"
        " another value, and the\nscenarios of `r2ccl-explore --bench` take so much longer (+) or less long (-);"
        f" changes below {LEAST_CHANGE:.0f} % are nothing. A value\nthat may be a quarter and four times as much is"
        " also tried all but zero and all but endless. Virtual time in ms\nwith the values as they are, median of"
        f" {repeats} seeds.\n\nOf few seeds, changes of some percent in scenarios with losses or delays are"
        " chance: `kChunkAlignment`, a cache line,\nshows what chance is worth. A row stays until its constant is tried"
        " again, so it may be older than these times.\n\nA row without changes is about what these scenarios lack: "
        "limits of memory, planned shares, fail-stop mode, third\nhosts, processes that the machine keeps from running,"
        " what costs a processor, and what\nlasts for seconds. Unit tests fail without `kLimitInAbsences`,"
        " `kFailStopStallNs`, `kLeadBytes`, `kFarSlower`,\n`kLeastResent`, `kAloneBytes`, `kAloneFlight`,"
        " `kAloneRun`, `kPacketBytes` and `kUnhurried`.\n\n| scenario | ms |\n|---|---|\n"
        + "\n".join(f"| {name} | {ms:.1f} |" for name, ms in normal.items())
        + f"\n\n| constant | value | file of failover/ | divided by {factor} | times {factor} |\n"
        + "|---|---|---|---|---|\n"
        + "\n".join(measured)
        + "\n"
    )


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
    with tempfile.TemporaryDirectory(prefix="r2ccl-constants-") as temporary:
        folder = Path(temporary)
        program = build_adjustable(folder, options.jobs)
        shipped = build(NATIVE, folder / "shipped", options.jobs)
        if bench(program, 1) != bench(shipped, 1):
            sys.exit("with the values as they are, the bench differs from that of the code that ships")
        normal = bench(program, options.repeats)
        found = rows(program, chosen, normal, options.factor, options.repeats, options.jobs)
    for file in ([TABLE] if options.write else []) + ([options.table] if options.table else []):
        file.write_text(table(every, {**known_rows(file), **found}, normal, options.factor, options.repeats))
    return 0


if __name__ == "__main__":
    sys.exit(main())
