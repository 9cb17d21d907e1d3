"""The stored form of a run: what run.json and trial.json hold, and the one place that reads and writes them.

The sweep writes these models and reports read them; nothing here needs pandas or matplotlib. All times are
ns since the epoch on the harness' clock, durations are ns, bandwidths GB/s (1e9 bytes/s, as nccl-tests).
Unknown keys are refused by name; `provenance`, `tags`, `evidence` and `core` are open: they may grow
without a new schema version. Files of older versions are brought up to date as they are read
(`reports.upgrade`); SCHEMA.md says what each version changed.
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
"""Behind the name of a system whose numbers come from the simulator."""

Phase = Literal["warmup", "before", "hit", "after", "repaired"]
Status = Literal["ok", "wrong", "failed", "inconclusive"]


class Stored(BaseModel):
    """Frozen, and an unknown key is a mistake."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, serialize_by_alias=True)


Int64 = Annotated[int, Field(ge=-(2**63), lt=2**63)]
"""What a column of rows.parquet can hold."""


class Iteration(Stored):
    """One iteration that ended on every rank. `t_ns` is its earliest start, `duration_ns` the longest rank's."""

    iteration: Int64
    """Counted from 0; warm-ups are negative."""
    phase: Phase
    t_ns: Int64
    duration_ns: Annotated[Int64, Field(ge=0)]
    wrong: Int64 | None = None
    """Wrong elements over all ranks; None where nothing was checked."""
    algbw_gbs: FiniteFloat | None = None
    busbw_gbs: FiniteFloat | None = None
    """Of collectives only."""
    measures: dict[str, FiniteFloat] = {}
    """What the workload measured in it besides: ``loss``, ``tokens``."""


class Fault(Stored):
    """The fault as it was: its effect came between `t_before_ns` and `t_after_ns`."""

    kind: str
    host: str
    nic: str
    t_before_ns: Int64
    t_after_ns: Int64
    heal_ns: Int64 | None = None


class TrialError(Stored):
    """The first trouble of any rank; `after_fault_ns` is counted from the fault. With several ranks a host, `rank` is
    the number of the host."""

    rank: int | None = None
    message: str
    t_ns: Int64 | None = None
    after_fault_ns: Int64 | None = None


class Evidence(BaseModel):
    """What proves that the fault was one; None: not known or not asked for. More keys may stand beside."""

    model_config = ConfigDict(extra="allow", frozen=True)

    in_flight: bool | None = None
    struck_iteration: Int64 | None = None
    dead_nic_tx_after: Int64 | None = None
    dead_nic_rx_after: Int64 | None = None
    healed: bool | None = None
    strikes_left_out: int | None = None
    """Failures by chance that were drawn but could not come in time."""
    stolen_share: float | None = None
    """The processor time that a hypervisor took away while the trial ran, of the host that lost most."""
    unwatched: dict[str, str] = {}
    """By host, why its watch told nothing: of its processors, memory and errors there is nothing for this trial."""
    strikes: tuple[dict[str, Any], ...] = ()
    """The same for every failure of the trial, in the order in which they came."""


class Trial(Stored):
    """One attempt at one cell of the experiment's grid: the content of trial.json."""

    schema_version: int = Field(default=SCHEMA, alias="schema")
    trial_id: str
    """The name of its folder; from the second attempt on it ends in ``-a<attempt>``."""
    system: str
    mode: Int64
    workload: str = "collective"
    """The kind of what ran."""
    operation: str = ""
    """What ran, in words, where it is no collective."""
    counts: str = "iterations"
    """What its iterations are called."""
    collective: str = ""
    """This and the next four are of collectives only; the size of other workloads is 0."""
    size_bytes: Annotated[Int64, Field(ge=0)] = 0
    dtype: str = ""
    op: str = ""
    place: str = ""
    scenario: str
    """The label of its fault scenario; ``healthy`` without one.

    ``healthy_before`` and ``healthy_after`` stand beside faulted trials, to show whether the machine drifts.
    """
    axes: dict[str, str] = {}
    """The point of the experiment's axes: what each one's value is called."""
    settings: dict[str, Any] = {}
    """The keys of the experiment that the axes set for this trial, as in the file."""
    repeat: Int64
    attempt: Annotated[Int64, Field(ge=1)]
    status: Status
    expected: bool
    """Whether `status` is what the experiment expects of this system."""
    reason: str = ""
    fault: Fault | None = None
    """The first failure."""
    further_faults: tuple[Fault, ...] = ()
    """Those after it, in the order in which they came."""
    iterations: tuple[Iteration, ...] = ()
    evidence: Evidence = Evidence()
    core: dict[str, Any] = {}
    """`Communicator.stats()` by rank, where the rank lived to tell; with several ranks a host, of all of them
    together, by the number of the host."""
    error: TrialError | None = None
    result: dict[str, str] = {}
    """What the ranks ended with, where the workload tells: ``weights``, a digest of them."""

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Every failure, in the order in which they came."""
        return (self.fault, *self.further_faults) if self.fault is not None else ()

    @property
    def simulated(self) -> dict[str, Any] | None:
        """With what it was simulated, where no byte was moved; None for a trial that was measured."""
        about = (self.evidence.model_extra or {}).get("simulated")
        return about if isinstance(about, dict) else None

    @property
    def source(self) -> str:
        """``measured`` or ``simulated``."""
        return "measured" if self.simulated is None else "simulated"

    @property
    def shown_system(self) -> str:
        """The system's name wherever its numbers are shown: those of the simulator must not pass for measured ones."""
        return self.system if self.simulated is None else self.system + SIMULATED

    @property
    def cell_id(self) -> str:
        """The trial that this is an attempt at."""
        return self.trial_id.removesuffix(f"-a{self.attempt}") if self.attempt > 1 else self.trial_id


class Run(Stored):
    """The content of run.json. `experiment` is the experiment file with every default filled in."""

    schema_version: int = Field(default=SCHEMA, alias="schema")
    experiment: dict[str, Any]
    provenance: dict[str, Any] = {}
    started: str
    finished: str | None = None
    tags: dict[str, Any] = {}


S = TypeVar("S", bound=Stored)


def load_trial(path: Path) -> Trial:
    """Reads a trial.json; raises `SchemaError`, one line with the file and what to do."""
    return _load(Trial, "trial", path)


def load_run(path: Path) -> Run:
    """Reads a run.json; raises `SchemaError`."""
    return _load(Run, "run", path)


def to_json(stored: Stored) -> dict[str, Any]:
    """The plain JSON values of a model, under the keys of the file."""
    return stored.model_dump(mode="json", by_alias=True)


def save(path: Path, stored: Stored) -> None:
    """Writes `path` so that it is there whole or not at all, whatever kills this process."""
    part = path.with_name(f".{path.name}.part")
    part.write_text(json.dumps(to_json(stored), indent=1) + "\n", encoding="utf-8")
    part.replace(path)


def check_version(values: Mapping[str, Any], where: str) -> int:
    """The schema version of `values`; raises `SchemaError` unless this program knows it."""
    found = values.get("schema")
    if type(found) is not int or found < OLDEST:
        raise SchemaError(f"{where}: schema: {found!r} is no schema version that is read; was this written by a sweep?")
    if found > SCHEMA:
        raise SchemaError(
            f"{where}: schema {found} is newer than this program's {SCHEMA}; "
            "report it with the version that wrote it (its commit is in run.json), or update"
        )
    return found


def _load(model: type[S], kind: Kind, path: Path) -> S:
    text = _text(path)
    values = _values(path, text)
    found = check_version(values, str(path))
    if found < SCHEMA:
        text = json.dumps(upgraded(kind, values, found))
    try:
        # From the text, not from the values: this parser refuses half characters, which no file can hold.
        return model.model_validate_json(text)
    except ValidationError as error:
        raise SchemaError(f"{path}: {_first_mistake(model, error)}") from None


def _text(path: Path) -> str:
    try:
        return text_of(path, most_bytes=STORED_BYTES)
    except FileNotFoundError:
        raise SchemaError(f"{path}: no such file; give the folder of a run, as runs/<name>-<time>") from None
    except OSError as error:
        raise SchemaError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SchemaError(f"{path}: broken: not UTF-8 text; remove it and sweep again") from None


def _values(path: Path, text: str) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"{path}: broken or cut short ({error}); remove it and sweep again") from None
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
    return f"{place}: {first['msg']}{more}; the file is damaged or was edited"
