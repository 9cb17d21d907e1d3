"""``harness compare BASE NEW``: whether NEW is worse than BASE by the rules."""

import sys
from collections.abc import Collection, Hashable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from harness.errors import ExitCode
from harness.terminal import console, fits, say, width
from r2ccl_core.errors import UsageError
from r2ccl_core.text_file import is_there
from reports.compare import CELL, Finding, compare, is_open, regressions, unjudgeable
from reports.compared import HEADINGS, as_json, as_words, cells, told
from reports.load import LoadedRun, load_folder, real
from reports.machines import Difference, differences
from reports.measures import trial_frame
from reports.metrics.training import have_weights, held_against, not_held
from reports.rules import DEFAULT, Rules, load_rules
from reports.trial import SIMULATED
from reports.wording import plain

if TYPE_CHECKING:
    import pandas as pd


_WEIGHTS = "Final weights of healthy trials are not compared with those of BASE"


def compare_command(base: str, new: str, rules: Path | None, json: bool) -> ExitCode:
    """Prints the comparison; 1 if anything regressed, 3 if it is unknown, as on different networks.

    A side is a run or ``FOLDER@SYSTEM``.
    """
    chosen = load_rules(rules) if rules else DEFAULT
    (base_folder, base_system), (new_folder, new_system) = parse_side(base), parse_side(new)
    runs = [replace(load_folder(folder), label=label) for folder, label in ((base_folder, "BASE"), (new_folder, "NEW"))]
    for run, system in zip(runs, (base_system, new_system), strict=True):
        _refuse_unknown(run, system)
    if (base_system is None) != (new_system is None):
        raise UsageError(f"{base} and {new}: name a system on both sides (RUN@SYSTEM) or on neither")
    if (real(base_folder), base_system) == (real(new_folder), new_system):
        raise UsageError(f"{base} and {new} are the same; give two runs, or two systems of one as RUN@SYSTEM")
    _tell_unknown(chosen, runs)
    label = None
    if base_system is not None and new_system is not None:
        shown = [_shown(run, system) for run, system in zip(runs, (base_system, new_system), strict=True)]
        label = " to ".join(dict.fromkeys(shown))
        between = tuple(rule.between((base_system, new_system, *shown), label) for rule in chosen.rules)
        chosen = chosen.model_copy(update={"rules": between})
    before, after = (_frame(run, system, label) for run, system in zip(runs, (base_system, new_system), strict=True))
    # Repeats of one run are blocks in which every system ran once: they pair. Those of two runs do not.
    paired = real(base_folder) == real(new_folder)
    between_runs = differences(runs)
    unheld = _unheld(before, after, base_system == new_system, between_runs)
    if base_system == new_system and not any(difference.decides_results for difference in between_runs):
        before, after = held_against(before, after)
    findings = compare(before, after, chosen, paired=paired, asked=rules is not None)
    _refuse_nothing(f"{base} and {new}", (before, after), chosen, findings, rules)
    if any(difference.is_of_network for difference in between_runs):
        findings = unjudgeable(findings)
    for problem in (problem for run in runs for problem in run.problems):
        print(plain(f"left out: {problem}"), file=sys.stderr)
    lacks = {run.name: run.incomplete for run in runs if run.incomplete}
    if json:
        print(as_json(base, new, findings, between_runs, lacks, unheld), end="")
    else:
        _print(findings, told(findings, between_runs, lacks, unheld))
    if regressions(findings):
        return ExitCode.WRONG
    return ExitCode.INCONCLUSIVE if is_open(findings, lacks) else ExitCode.OK


def _unheld(
    base: "pd.DataFrame", new: "pd.DataFrame", one_system: bool, between_runs: Sequence[Difference]
) -> list[str]:
    """Which weights of healthy trials are held against none of BASE, and why; none if there are no weights."""
    deciding = ", ".join(f"{each.about} ({each.what})" for each in between_runs if each.decides_results)
    if not have_weights(new):
        return []
    if not one_system:
        return [f"{_WEIGHTS}: two systems may add in another order."]
    if deciding:
        return [f"{_WEIGHTS}, as the runs differ in {deciding}."]
    return [f"{_WEIGHTS} for {system}: {why}." for system, why in not_held(base, new).items()]


def _refuse_nothing(
    sides: str, frames: Sequence["pd.DataFrame"], chosen: Rules, findings: Sequence[Finding], file: Path | None
) -> None:
    """Raises `UsageError` if no rule can say anything, whatever NEW is like. What one side only lacks is a finding."""
    columns = [*CELL, "collective", "scenario"]
    before, after = (set(frame[columns].itertuples(index=False, name=None)) for frame in frames)
    if not (common := before & after):
        if _measured(before) & _measured(after):
            raise UsageError(
                f"{sides} have the same systems, measured in one and simulated in the other; compare one of them as "
                "RUN@SYSTEM on both sides"
            )
        raise UsageError(f"{sides} have nothing in common; compare runs of one experiment")
    if not any(rule.applies(system, size, *about) for rule in chosen.rules for _, size, system, *about in common):
        raise UsageError(
            f"{file}: no rule matches anything that {sides} have in common; "
            "correct systems, sizes, collectives and scenarios of the rules, or leave them out"
        )
    if any(finding.base.n and finding.new.n for finding in findings) or regressions(findings) or is_open(findings):
        return
    names = ", ".join(dict.fromkeys(rule.metric for rule in chosen.rules))
    raise UsageError(f"{sides}: not both have a value that a rule names ({names}); `harness metrics` says what has one")


def _measured(cells: Collection[tuple[Hashable, ...]]) -> set[tuple[Hashable, ...]]:
    """The cells under the names that their systems have where they are measured."""
    system = CELL.index("system")
    return {(*c[:system], str(c[system]).removesuffix(SIMULATED), *c[system + 1 :]) for c in cells}


def _tell_unknown(rules: Rules, runs: Sequence[LoadedRun]) -> None:
    """Reports systems that rules name and no run has: either a typing mistake, or a rules file for several
    experiments."""
    known = {name for run in runs for trial in run.trials for name in (trial.system, trial.shown_system)}
    for name in dict.fromkeys(name for rule in rules.rules for name in rule.systems if name not in known):
        print(plain(f"rules: no run has the system {name!r}, which a rule names"), file=sys.stderr)


def parse_side(text: str) -> tuple[Path, str | None]:
    """Parses ``FOLDER`` or ``FOLDER@SYSTEM``; an existing folder of that whole name takes precedence."""
    folder, mark, system = text.rpartition("@")
    return (Path(text), None) if not mark or is_there(Path(text)) else (Path(folder), system)


def _frame(run: LoadedRun, system: str | None, label: str | None) -> "pd.DataFrame":
    frame = trial_frame([run])
    return frame if system is None else frame[frame["system"].isin(_names(system))].assign(system=label)


def _refuse_unknown(run: LoadedRun, system: str | None) -> None:
    """Raises `UsageError` if `run` has no trial of `system`."""
    known = dict.fromkeys(trial.shown_system for trial in run.trials)
    if system is not None and not known.keys() & _names(system):
        raise UsageError(f"{run.folder}: has no system {system!r}; it has {', '.join(known)}")


def _shown(run: LoadedRun, system: str) -> str:
    """The name of a system of `run`, with a word where its numbers are simulated."""
    names = _names(system)
    return next(trial.shown_system for trial in run.trials if trial.shown_system in names)


def _names(system: str) -> set[str]:
    """What a system is called where it was measured, and where it was simulated."""
    return {system, f"{system}{SIMULATED}"}


def _print(findings: Sequence[Finding], lines: Sequence[str]) -> None:
    out = console()
    several = len({finding.case for finding in findings}) > 1
    for case in dict.fromkeys(finding.case for finding in findings):
        shown = Table(title=plain(case) if several else None)
        for heading in HEADINGS:
            shown.add_column(heading, justify="left" if heading in ("system", "metric", "conclusion") else "right")
        part = [finding for finding in findings if finding.case == case]
        for finding in part:
            shown.add_row(*cells(finding), style=_style(finding))
        if width() is None or fits(shown, out):
            out.print(shown)
        else:
            _list(part, plain(case) if several else "")
    for line in lines:
        say(line)


def _list(findings: Sequence[Finding], title: str) -> None:
    """A paragraph for each finding, used if a table does not fit."""
    if title:
        say(title)
    for finding in findings:
        say(as_words(finding), _style(finding), indent="  ")


def _style(finding: Finding) -> str:
    return "bold red" if finding.regressed else ""
