"""``harness init``: writes a commented, valid experiment, ready to run, from a few answers."""

import json
import re
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

from faults.registry import FAULTS
from harness.backends.torch import timed_nics
from harness.errors import ExitCode, ExperimentError, InvalidExperimentError
from harness.experiment.file import read
from harness.experiment.model import Experiment
from harness.experiment.tables import nearest
from harness.interrupt import Interrupted
from harness.sweep.estimate import estimate_s, in_words, report_s
from harness.sweep.plan import plan
from harness.systems.catalogue import CATALOGUE
from harness.terminal import say
from r2ccl_core.errors import UsageError
from r2ccl_core.model.collective import COLLECTIVES
from r2ccl_core.text_file import absolute, is_folder, is_there, write_text
from reports.wording import plural

OPTIONS = {
    "cluster.hosts": "--hosts", "cluster.nics": "--nics", "cluster.rate": "--rate", "cluster.inventory": "--inventory",
    "workload.collective": "--collective", "workload.sizes": "--size", "workload.nccl_tests": "--nccl-tests",
    "system": "--system", "fault": "--fault", "sweep.repeats": "--repeats",
}  # fmt: skip
"""The option that decides a key of the file."""
ITERATIONS = 12
RATE, VMS_RATE = "500 Mbit/s", "200 Mbit/s"
"""Of NICs of namespaces, and of virtual machines, which two cores also have to translate where there is no KVM."""


@dataclass(frozen=True)
class Answers:
    """The contents of the new experiment."""

    hosts: int = 3
    nics: int = 3
    rate: str | None = None
    """None: `RATE` or `VMS_RATE`."""
    inventory: Path | None = None
    """Existing hosts, instead of a local cluster of `hosts` and `nics`."""
    collectives: Sequence[str] = ("all_reduce",)
    sizes: Sequence[str] = ("8MiB",)
    systems: Sequence[str] = ("failstop", "balance")
    faults: Sequence[str] = ("nic_down",)
    repeats: int = 3
    nccl_tests: Path | None = None

    @property
    def of_machines(self) -> list[str]:
        """The faults that only virtual machines can have."""
        return [kind for kind in self.faults if kind in FAULTS and FAULTS[kind].needs_machine]


@dataclass(frozen=True)
class Question:
    """One question: the answer that it fills, and how its text is parsed."""

    key: str
    text: str
    read: Callable[[str], object]


def _words(text: str) -> tuple[str, ...]:
    return tuple(filter(None, re.split(r"[,\s]+", text)))


def _count(text: str) -> int:
    if not text.isdecimal() or len(text) > LONGEST:
        raise UsageError("give a whole number")
    return int(text)


QUESTIONS = (
    Question("hosts", "How many hosts in the local cluster", _count),
    Question("nics", "How many NICs each", _count),
    Question("collectives", "Which collectives", _words),
    Question("sizes", "Of which sizes", _words),
    Question("systems", "Which systems (harness systems lists them)", _words),
    Question("faults", "Which faults (harness faults lists them)", _words),
    Question("repeats", "How many repeats of each trial", _count),
)
LONGEST = 9
"""Digits of a number; more are a slip, and no limit is that high."""


def init(file: Path, answers: Answers, *, ask: bool, force: bool) -> ExitCode:
    """Writes the experiment `file`, after asking questions if `ask` is set and standard input is a terminal.

    Raises `UsageError` if the file exists (unless `force`), and for answers that make no valid experiment.
    """
    if is_folder(file):
        raise UsageError(f"{file}: is a folder; name a file in it, such as {file / 'experiment.toml'}")
    if not is_there(file.parent):
        raise UsageError(f"{file.parent}: there is no such folder; make it first, or name another file")
    if is_there(file) and not force:
        raise UsageError(f"{file}: exists already; name another file, or give --force")
    if ask and sys.stdin.isatty() and sys.stdout.isatty():
        answers = _asked(answers, file)
    text, experiment = _made(answers, file)
    try:
        write_text(file, text)
    except OSError as error:
        raise UsageError(f"{file}: cannot be written: {error.strerror}") from None
    trials = plan(experiment)
    lasts = in_words(estimate_s(trials, 1) + report_s(trials))
    say(f"{file}: {plural(len(trials), 'trial')}, roughly {lasts} on a quiet machine")
    if answers.of_machines:
        say(f"its hosts are virtual machines, which {answers.of_machines[0]} needs")
    command = shlex.join(["harness", "sweep", str(file)])
    say(f"try it:  {command} --dry-run", indent="         ")
    say(f"         {command} --set workload.backend=simulate", indent="         ")
    say(f"         {command}", indent="         ")
    return ExitCode.OK


def _made(answers: Answers, file: Path) -> tuple[str, Experiment]:
    """The text of the file, and the experiment that it is; raises `UsageError` for answers that make no valid one."""
    if answers.nccl_tests is not None and not is_folder(answers.nccl_tests):
        raise UsageError(f"--nccl-tests {answers.nccl_tests}: not a folder; name the one with the built programs")
    for key, known in {"collectives": COLLECTIVES, "systems": tuple(CATALOGUE), "faults": tuple(FAULTS)}.items():
        for name in getattr(answers, key):
            if name not in known:
                listed = key != "collectives" and not get_close_matches(name, known, 1)
                remedy = f"`harness {key}` lists them" if listed else nearest(name, known)
                raise UsageError(f"--{key.removesuffix('s')} {name}: is unknown; {remedy}")
            if getattr(answers, key).count(name) > 1:
                raise UsageError(f"--{key.removesuffix('s')} {name}: is given more than once; name each once")
    if answers.of_machines and answers.inventory is not None:
        kind = answers.of_machines[0]
        raise UsageError(f"--fault {kind}: needs virtual machines of this program; leave it out, or --inventory")
    text = "\n".join(lines(answers, file)) + "\n"
    try:
        return text, read(tomllib.loads(text), str(file))
    except InvalidExperimentError as invalid:
        raise UsageError("\n".join(_of_option(error, answers) for error in invalid.errors)) from None
    except ExperimentError as error:
        raise UsageError(_of_option(error, answers)) from None


def _of_option(error: ExperimentError, answers: Answers) -> str:
    """A mistake in the file, which nobody has seen yet, as one in the option that it comes from."""
    found = re.fullmatch(r"(?P<key>[a-z_.]+)(\[(?P<entry>\d+)\])?\.?(?P<rest>.*)", error.key)
    if found is None or (option := OPTIONS.get(found["key"])) is None:
        return str(error)
    value, rest = error.value, found["rest"]
    if found["key"].startswith("cluster.") and answers.inventory is not None:
        option, value, rest = "--inventory", answers.inventory, f"{error.key}: {error.value}"
    if found["key"] in ("system", "fault") and found["entry"] is not None:
        value = {"system": answers.systems, "fault": answers.faults}[found["key"]][int(found["entry"])]
        rest += f": {error.value}" if rest and error.value is not None else ""
    given = option if value is None else f"{option} {shlex.quote(str(value))}"
    return ": ".join(filter(None, (given, rest, error.remedy)))


def _asked(answers: Answers, file: Path) -> Answers:
    """The user's answers; an empty line accepts the value in brackets. An answer with which no experiment could be made
    is asked again at once, so that none is given in vain."""
    for question in QUESTIONS:
        usual = getattr(answers, question.key)
        shown = " ".join(usual) if isinstance(usual, tuple | list) else str(usual)
        while True:
            try:
                text = input(f"{question.text} [{shown}]: ").strip()
            except EOFError as end:  # Ctrl-D
                print()
                raise Interrupted("nothing is written") from end
            if not text:
                break
            try:
                changed = replace(answers, **{question.key: question.read(text)})  # type: ignore[arg-type]
                _made(changed, file)
            except UsageError as error:
                say(f"  {error}", indent="  ")
                continue
            answers = changed
            break
    return answers


def lines(answers: Answers, file: Path) -> Iterator[str]:
    """The experiment as a TOML document. Pure."""
    name = re.sub(r"[^a-z0-9_]+", "_", file.stem.lower()).strip("_")[:40] or "experiment"
    what = ", ".join(answers.collectives)
    yield f"# An experiment: {', '.join(answers.faults) or 'nothing'} in the middle of {what}."
    yield "# Every combination of system, size and fault runs [sweep] repeats times; the report is in the run folder."
    yield "#"
    yield f"#     harness sweep {_one_line(file)}"
    yield "schema = 1"
    yield f"name = {_text(name)}"
    yield _said('description = ""', "shown in the report")
    yield ""
    yield from _cluster(answers)
    yield ""
    yield "[workload]"
    yield f"collective = {_text(next(iter(answers.collectives), ''))}"
    yield f"sizes = [{', '.join(map(_text, answers.sizes))}]"
    yield _said(f"iterations = {ITERATIONS}", "of every trial; the fault is injected into one of them")
    yield _said('min_duration = "1 s"', "more iterations if they are short, so that the fault hits one")
    yield "warmup = 1"
    yield _said("check = true", "every element of every result is compared")
    if answers.nccl_tests is not None:
        yield f"nccl_tests = {_text(str(answers.nccl_tests))}"
    if len(answers.collectives) > 1:
        yield ""
        yield _said("[[axis]]", "a further dimension: each value with every system, size and fault")
        yield 'key = "workload.collective"'
        yield f"values = [{', '.join(map(_text, answers.collectives))}]"
    for system in answers.systems:
        yield ""
        yield "[[system]]"
        yield _said(f"use = {_text(system)}", CATALOGUE[system].what)
    for kind in answers.faults:
        yield ""
        yield from _fault(kind, answers)
    yield ""
    yield "[sweep]"
    yield _said(f"repeats = {answers.repeats}", "an interval needs 2, showing a small difference often 5")
    yield _said("seed = 1", "for the order of trials")
    yield ""
    yield "# Further options: more dimensions ([[axis]]), bounds that determine the exit status ([[bound]]), failures"
    yield "# at random times (mtbf, mttr) or from a trace. `harness experiments` lists examples."


def _cluster(answers: Answers) -> Iterator[str]:
    yield "[cluster]"
    if answers.inventory is not None:
        yield _said('kind = "inventory"', "existing hosts; check them first with `harness cluster check`")
        yield f"inventory = {_text(str(absolute(answers.inventory)))}"
        return
    if answers.of_machines:
        yield _said('kind = "vms"', f"virtual machines on this machine, which {answers.of_machines[0]} needs")
    else:
        yield _said('kind = "local"', "network namespaces on this machine; no GPU is needed")
    yield f"hosts = {answers.hosts}"
    yield _said(f"nics = {answers.nics}", "data NICs of each host, one on each rail")
    rate = answers.rate or (VMS_RATE if answers.of_machines else RATE)
    yield _said(f"rate = {_text(rate)}", "of each NIC; slow enough for two cores")


def _fault(kind: str, answers: Answers) -> Iterator[str]:
    fault = FAULTS[kind]
    yield "[[fault]]"
    yield f"kind = {_text(kind)}"
    if fault.scope != "rail":
        yield _said('host = "host1"', 'the second host, whatever its name; or "random"')
    if fault.scope in ("nic", "rail"):
        yield _said(f"rail = {_rail(answers)}", "its NIC on that rail" if fault.scope == "nic" else "all of its NICs")
    yield _said("at_progress = 0.4", "in the iteration after this share of all iterations ...")
    yield _said("into = 0.5", "... after this share of its time")
    if fault.must_end:
        yield _said('lasts = "300 ms"', "then it continues")
    else:
        yield _said('# lasts = "300 ms"', "healed after this time; by default at the end of the trial")
    if fault.model_fields:
        yield "# Parameters with their defaults:"
        yield "[fault.parameters]"
        for name, about in fault.model_fields.items():
            usual = "..." if about.default is None else _text(about.default)
            yield _said(f"# {name} = {usual}", about.description or "")


def _rail(answers: Answers) -> int:
    """The second rail, if all hosts have it and every system sends the collectives over it."""
    in_turn = any(CATALOGUE[system].nics_in_turn for system in answers.systems)
    used = [timed_nics(one, answers.nics) if in_turn else range(answers.nics) for one in answers.collectives]
    return 1 if answers.inventory is None and all(1 in rails for rails in used) else 0


def _said(line: str, comment: str) -> str:
    """A line with its comment, all comments in one column."""
    return f"{line:<36}# {comment}"


def _one_line(file: Path) -> str:
    """The name as a comment of TOML may hold it, which has no control characters."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(file))


def _text(value: object) -> str:
    """A TOML value; JSON strings are valid TOML, except for DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
