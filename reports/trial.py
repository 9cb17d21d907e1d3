"""The stored form of a run: the contents of run.json and trial.json. Only this file reads and writes them.

The sweep writes these models and reports read them; nothing here needs pandas or Matplotlib. All times are ns since the
epoch on the harness's clock, durations are ns, bandwidths GB/s (1e9 bytes/s, as in nccl-tests). Unknown keys are
refused by name; `provenance`, `tags`, `evidence` and `core` are open: they may grow without a new schema version. Files
of older versions are upgraded as they are read (`reports.upgrade`); SCHEMA.md lists the changes of each version.
"""

import difflib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from r2ccl_core.text_file import STORED_BYTES, text_of
from reports.errors import SchemaError
from reports.upgrade import OLDEST, Kind, upgraded
from reports.upgrade import SCHEMA as SCHEMA

SIMULATED = " (simulated)"
"""Suffix of the name of a system whose numbers come from the simulator."""

EDITED = "the file is damaged or was edited"

Phase = Literal["warmup", "before", "hit", "after", "repaired"]
Status = Literal["ok", "wrong", "failed", "inconclusive"]


class Stored(BaseModel):
    """Base of the stored models: frozen, and unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, serialize_by_alias=True)


Int64 = Annotated[int, Field(ge=-(2**63), lt=2**63)]
"""The types that a column of rows.parquet can have."""


class Iteration(Stored):
    """One iteration that ended on every rank. `t_ns` is the earliest start, `duration_ns` that of the slowest rank."""

    iteration: Int64
    """Counted from 0; warm-ups are negative."""
    phase: Phase
    t_ns: Int64
    duration_ns: Annotated[Int64, Field(ge=0)]
    wrong: Annotated[Int64, Field(ge=0)] | None = None
    """Wrong elements over all ranks; None if nothing was checked."""
    algbw_gbs: FiniteFloat | None = None
    busbw_gbs: FiniteFloat | None = None
    """Only for collectives."""
    measures: dict[str, FiniteFloat] = {}
    """Further measurements of the workload: ``loss``, ``tokens``."""


class Fault(Stored):
    """The fault as it happened: it took effect between `t_before_ns` and `t_after_ns`."""

    kind: str
    host: str
    nic: str
    t_before_ns: Int64
    t_after_ns: Int64
    heal_ns: Int64 | None = None


class TrialError(Stored):
    """The first error of any rank; `after_fault_ns` is counted from the fault. With several ranks per host, `rank` is
    the number of the host."""

    rank: int | None = None
    message: str
    t_ns: Int64 | None = None
    after_fault_ns: Int64 | None = None


class Evidence(BaseModel):
    """The evidence for the fault; None: unknown or not requested. Further keys are allowed."""

    model_config = ConfigDict(extra="allow", frozen=True)

    several: bool | None = None
    """Whether the scenario, as the experiment has it, consists of several failures, however many the trial lived to."""
    comes_and_goes: bool | None = None
    """Whether something that breaks in the scenario works again while another failure of it goes on or is still to
    come, or may do so."""
    timed_whole: bool | None = None
    """Whether the durations of its iterations reach to their ends, so that the time to the next is between them. A
    program of its own may time a part only (nccl-tests). None: recorded by an older program."""
    lasts_s: float | None = None
    """After how long the scenario repairs the first failure; None: with the end of the trial, or it has many."""
    in_flight: bool | None = None
    struck_iteration: Int64 | None = None
    dead_nic_tx_after: Int64 | None = None
    dead_nic_rx_after: Int64 | None = None
    healed: bool | None = None
    strikes_left_out: int | None = None
    """Random failures that were drawn but could not be injected in time."""
    stolen_share: float | None = None
    """The processor time that a hypervisor took during the trial, for the host that lost most."""
    unwatched: dict[str, str] = {}
    """By host, why its watch reported nothing; the trial then has no record of the host's processors, memory and
    errors."""
    strikes: tuple[dict[str, Any], ...] = ()
    """The same for every failure of the trial, in order."""


class Trial(Stored):
    """One attempt at one cell of the experiment's grid: the content of trial.json."""

    schema_version: int = Field(default=SCHEMA, alias="schema")
    trial_id: str
    """The name of its folder; it ends in ``-a<attempt>`` from the second attempt on."""
    system: str
    mode: Int64
    workload: str = "collective"
    """The kind of workload."""
    operation: str = ""
    """The workload in words, if it is no collective."""
    counts: str = "iterations"
    """What its iterations are called."""
    collective: str = ""
    """This and the next four apply only to collectives; the size of other workloads is 0."""
    size_bytes: Annotated[Int64, Field(ge=0)] = 0
    dtype: str = ""
    op: str = ""
    place: str = ""
    scenario: str
    """The label of its fault scenario; ``healthy`` without a fault.

    ``healthy_before`` and ``healthy_after`` accompany faulted trials, to show whether the machine drifts.
    """
    axes: dict[str, str] = {}
    """The name of the trial's value on each axis of the experiment."""
    settings: dict[str, Any] = {}
    """The keys of the experiment that the axes set for this trial, spelt as in the file."""
    repeat: Int64
    attempt: Annotated[Int64, Field(ge=1)]
    status: Status
    expected: bool
    """Whether the experiment expects this `status` of the system."""
    reason: str = ""
    fault: Fault | None = None
    """The first failure."""
    further_faults: tuple[Fault, ...] = ()
    """Those after the first, in order."""
    iterations: tuple[Iteration, ...] = ()
    evidence: Evidence = Evidence()
    core: dict[str, Any] = {}
    """`Communicator.stats()` by rank, for ranks that reported them; with several ranks per host, combined by the number
    of the host."""
    error: TrialError | None = None
    result: dict[str, str] = {}
    """The ranks' final results, if the workload reports any: ``weights``, a digest of them."""

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Every failure, in order."""
        return (self.fault, *self.further_faults) if self.fault is not None else ()

    @property
    def simulated(self) -> dict[str, Any] | None:
        """The parameters of the simulation, in which no byte was moved; None for a measured trial."""
        about = (self.evidence.model_extra or {}).get("simulated")
        return about if isinstance(about, dict) else None

    @property
    def source(self) -> str:
        """``measured`` or ``simulated``."""
        return "measured" if self.simulated is None else "simulated"

    @property
    def shown_system(self) -> str:
        """The system's name for display: simulated numbers must not be mistaken for measured ones."""
        return self.system if self.simulated is None else self.system + SIMULATED

    @property
    def shown_scenario(self) -> str:
        """The scenario for display; healthy trials before and after the others count as one, since together they show
        the healthy machine."""
        return "healthy" if self.scenario.startswith("healthy_") else self.scenario

    @property
    def timed(self) -> tuple[Iteration, ...]:
        """Its iterations as every count of them means it: without warm-ups."""
        return tuple(i for i in self.iterations if i.phase != "warmup")

    @property
    def cell_id(self) -> str:
        """The id of the trial, without the attempt."""
        return self.trial_id.removesuffix(f"-a{self.attempt}") if self.attempt > 1 else self.trial_id


class Run(Stored):
    """The content of run.json. `experiment` is the experiment file with every default filled in."""

    schema_version: int = Field(default=SCHEMA, alias="schema")
    experiment: dict[str, Any]
    provenance: dict[str, Any] = {}
    started: str
    finished: str | None = None
    tags: dict[str, Any] = {}

    @property
    def only(self) -> dict[str, tuple[str, ...]]:
        """The values that ``--only`` selected, by dimension; empty: everything was selected."""
        only = self.tags.get("only")
        chosen = only.items() if isinstance(only, dict) else ()
        return {axis: tuple(map(str, values)) for axis, values in chosen if isinstance(values, list)}

    @property
    def may_end_early(self) -> bool:
        """Whether its repeats end when its cells are known precisely."""
        sweep = self.experiment.get("sweep")
        repeats = sweep.get("repeats") if isinstance(sweep, dict) else None
        return isinstance(repeats, dict) and repeats.get("until") is not None

    @property
    def planned(self) -> int | None:
        """How many trials the sweep plans, or came to once it has finished; None: not recorded.

        A sweep whose repeats end when its cells are known precisely comes to fewer than it planned, and older programs
        did not record how many.
        """
        found = self.tags.get("ran" if self.finished and self.may_end_early else "trials")
        return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else None


S = TypeVar("S", bound=Stored)


def load_trial(path: Path) -> Trial:
    """Reads a trial.json; raises `SchemaError`, one line with the file and the remedy."""
    return _load(Trial, "trial", path)


def load_run(path: Path) -> Run:
    """Reads a run.json; raises `SchemaError`."""
    return _load(Run, "run", path)


def to_json(stored: Stored) -> dict[str, Any]:
    """The plain JSON values of a model, under the keys of the file."""
    return stored.model_dump(mode="json", by_alias=True)


def save(path: Path, stored: Stored) -> None:
    """Writes `path` atomically, even if this process is killed."""
    part = path.with_name(f".{path.name}.part")
    part.write_text(json.dumps(to_json(stored), indent=1) + "\n", encoding="utf-8")
    part.replace(path)


def check_version(values: Mapping[str, Any], where: str) -> int:
    """The schema version of `values`; raises `SchemaError` unless this program knows it."""
    found = values.get("schema")
    if type(found) is not int or found < OLDEST:
        raise SchemaError(
            f"{where}: schema: {found!r} is not a schema version that this program reads; was this written by a sweep?"
        )
    if found > SCHEMA:
        raise SchemaError(
            f"{where}: schema {found} is newer than this program's {SCHEMA}; "
            "report it with the version that wrote it (its commit is in run.json), or update"
        )
    return found


def _load(model: type[S], kind: Kind, path: Path) -> S:
    text = _text(path, kind)
    values = _values(path, text, kind)
    found = check_version(values, str(path))
    if found < SCHEMA:
        text = json.dumps(upgraded(kind, values, found))
    try:
        # Parsed from the text, not from the values: this parser refuses lone surrogates, which no file can hold.
        return model.model_validate_json(text, strict=True)
    except ValidationError as error:
        raise SchemaError(f"{path}: {_first_mistake(model, error)}") from None


_REMEDIES: Mapping[Kind, str] = {
    "run": "the run cannot be read without it; restore it from a copy, or sweep again with --fresh",
    "trial": "remove it and sweep again",
}
"""What to do about a broken file: a trial can be run again by itself, and a sweep does not resume without run.json."""


def _text(path: Path, kind: Kind) -> str:
    try:
        return text_of(path, most_bytes=STORED_BYTES)
    except FileNotFoundError:
        raise SchemaError(f"{path}: no such file; give the folder of a run, as runs/<name>-<time>") from None
    except NotADirectoryError:
        raise SchemaError(f"{path.parent}: is a file; give the folder of a run, as runs/<name>-<time>") from None
    except OSError as error:
        raise SchemaError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SchemaError(f"{path}: broken: not UTF-8 text; {_REMEDIES[kind]}") from None


def _values(path: Path, text: str, kind: Kind) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"{path}: broken or cut short ({error}); {_REMEDIES[kind]}") from None
    if not isinstance(values, dict):
        raise SchemaError(f"{path}: holds no JSON object; was this written by a sweep?")
    return values


def _first_mistake(model: type[Stored], error: ValidationError) -> str:
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    if first["type"] == "extra_forbidden":
        known = [f.alias or name for name, f in model.model_fields.items()]
        near = difflib.get_close_matches(str(first["loc"][-1]), known, 1)
        return f"{place}: unknown key{f'; nearest is {near[0]!r}' if near else ''}{more}"
    return f"{place}: {first['msg']}{more}; {EDITED}"
