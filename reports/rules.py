"""The rules of a comparison: which measures matter, which direction is better, and how much worse is too much.

schema = 1

[[rule]]
metric = "after_gbs"          # any of reports.metrics
direction = "higher"          # which way is better; optional, since each metric has its own
tolerance = "5 %"             # of the base, or an amount in the metric's unit: "20 ms", 0
systems = ["balance"]         # optional: only these systems, sizes, collectives, scenarios; of RUN@A RUN@B, either
sizes = ["64MiB"]
"""

import tomllib
from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

from r2ccl_core.errors import UnitError
from r2ccl_core.text_file import TOO_LONG, text_of, toml_of
from r2ccl_core.units import parse_size
from r2ccl_core.validation import in_our_words
from reports.errors import ReportError
from reports.metrics import METRICS
from reports.metrics.metric import Metric

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

Direction = Literal["higher", "lower"]


class Tolerance(NamedTuple):
    """How much worse is still acceptable: a share of the base, or an amount in the metric's unit."""

    amount: float
    relative: bool


def _tolerance(value: object) -> object:
    """Parses a tolerance: ``"5 %"`` is relative, a number with or without a unit is absolute. The rule checks the
    unit."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError('write a share as "5 %" or an amount as "20 ms"')
    number, _, unit = str(value).strip().partition(" ")
    if str(value).strip().endswith("%"):
        number, unit = str(value).strip().removesuffix("%"), "%"
    try:
        amount = float(number)
    except ValueError:
        raise ValueError(f'{value!r} is not a tolerance; write a share as "5 %" or an amount as "20 ms"') from None
    if not 0 <= amount < 1e12:
        raise ValueError(f"{value!r} is not a tolerance; it must be 0 or more")
    return amount, unit.strip()


def _size(value: object) -> int:
    try:
        return parse_size(str(value))
    except UnitError as error:
        raise ValueError(str(error)) from error


class Rule(BaseModel):
    """One measure by which NEW is compared with BASE."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    metric: str
    direction: Direction | None = None
    written: Annotated[tuple[float, str], BeforeValidator(_tolerance)] = Field(alias="tolerance")
    systems: tuple[str, ...] = ()
    sizes: tuple[Annotated[int, BeforeValidator(_size)], ...] = ()
    collectives: tuple[str, ...] = ()
    scenarios: tuple[str, ...] = ()

    @field_validator("metric")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in METRICS:
            close = get_close_matches(name, METRICS, n=1)
            remedy = f"did you mean {close[0]!r}?" if close else "`harness metrics` lists them"
            raise ValueError(f"unknown metric {name!r}; {remedy}")
        return name

    @model_validator(mode="after")
    def _unit_fits(self) -> "Rule":
        unit = self.written[1]
        if unit == "%" and METRICS[self.metric].aggregate == "total":
            raise ValueError(f"{self.metric} is counted: give its tolerance as a number, such as 0")
        if unit not in ("", "%", METRICS[self.metric].unit):
            raise ValueError(f"the tolerance of {self.metric} is in {METRICS[self.metric].unit or 'no unit'} or in %")
        if self.direction is None and METRICS[self.metric].better is None:
            raise ValueError(f"{self.metric} has no better side of its own: add direction, higher or lower")
        return self

    def between(self, systems: Collection[str], label: str) -> "Rule":
        """The rule for a comparison of two systems named `label`: a rule for either system applies to their
        comparison."""
        spoken_of = any(system in self.systems for system in systems)
        return self.model_copy(update={"systems": (*self.systems, label)}) if spoken_of else self

    @property
    def tolerance(self) -> Tolerance:
        """The tolerance, in the metric's unit."""
        amount, unit = self.written
        return Tolerance(amount / 100, True) if unit == "%" else Tolerance(amount, False)

    @property
    def better(self) -> Direction:
        """The direction that is better."""
        return self.direction or METRICS[self.metric].better or "lower"

    def same_trials(self, other: "Rule") -> bool:
        """Whether `other` has the same filters."""
        filters = ("systems", "sizes", "collectives", "scenarios")
        return all(set(getattr(self, name)) == set(getattr(other, name)) for name in filters)

    def applies(self, system: str, size_bytes: int, collective: str, scenario: str) -> bool:
        """Whether a cell passes the rule's filters."""
        filters = (
            (self.systems, system), (self.sizes, size_bytes), (self.collectives, collective), (self.scenarios, scenario)
        )  # fmt: skip
        return all(not kept or value in kept for kept, value in filters)


class Rules(BaseModel):
    """A whole rules file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: Literal[1] = Field(default=1, alias="schema")
    rules: tuple[Rule, ...] = Field(alias="rule", min_length=1)

    @model_validator(mode="after")
    def _apply_once(self) -> "Rules":
        """Two rules for the same trials by one metric would judge them twice, perhaps differently."""
        for number, rule in enumerate(self.rules):
            for earlier, other in enumerate(self.rules[:number]):
                if rule.same_trials(other) and rule.metric == other.metric:
                    same = f"rule[{number}] and rule[{earlier}] are both for {rule.metric} of the same trials"
                    raise ValueError(f"{same}; keep one, or narrow them by systems, sizes, collectives or scenarios")
        return self


def rules_of(metrics: Iterable[Metric]) -> Rules:
    """The rules that the records of `metrics` set for themselves: what is counted first, since wrong results come
    before slow ones."""
    judged = sorted((one for one in metrics if one.tolerated), key=lambda one: one.aggregate != "total")
    return Rules.model_validate({"rule": [{"metric": one.name, "tolerance": one.tolerated} for one in judged]})


DEFAULT = rules_of(METRICS.values())
"""The rules that apply without a rules file. Time lost is judged by what it is made of: the mean of the iterations
since the fault, and healthy ones. By itself it is not known where something slowed the healthy iterations, which would
leave most comparisons of short operations open. Nor has it a tolerance that suits all trials: it may be 0 or less, so
that there is no ratio, and an amount that matters in a short trial is noise in a long one. A rules file may add it."""


def load_rules(path: Path) -> Rules:
    """Reads a rules file; raises `ReportError`, one line with file, key and remedy for each mistake."""
    try:
        values: dict[str, Any] = toml_of(text_of(path, "utf-8-sig"))
    except OSError as error:
        raise ReportError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ReportError(f"{path}: is not UTF-8 at byte {error.start}; save it as UTF-8") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ReportError(f"{path}: is not valid TOML: {error}") from None
    except ValueError:
        raise ReportError(f"{path}: {TOO_LONG}") from None
    try:
        return Rules.model_validate(values)
    except ValidationError as error:
        raise ReportError("\n".join(f"{path}: {line}" for line in _told(error))) from None


def _told(error: ValidationError) -> list[str]:
    # Unknown keys come first.
    errors = [one for one in error.errors() if not _follows(one, error.errors())]
    return [_line(one) for one in sorted(errors, key=lambda one: one["type"] != "extra_forbidden")]


def _line(one: "ErrorDetails") -> str:
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in one["loc"]).lstrip(".")
    if one["type"] == "extra_forbidden":
        model = Rules if len(one["loc"]) == 1 else Rule
        known = [field.alias or name for name, field in model.model_fields.items()]
        return f"{place}: unknown key; {_nearest(str(one['loc'][-1]), known)}"
    message = in_our_words(one).replace("\n", " ")
    return f"{place}: {message}" if place else message


def _follows(one: "ErrorDetails", errors: Sequence["ErrorDetails"]) -> bool:
    """Whether it only says that a list is too short without the items that are wrong, or that a key is missing whose
    misspelt name is unknown."""
    own = one["loc"]
    if one["type"] == "missing":
        return any(e["type"] == "extra_forbidden" and e["loc"][:-1] == own[:-1] for e in errors)
    return one["type"] == "too_short" and any(e is not one and e["loc"][: len(own)] == own for e in errors)


def _nearest(name: str, known: list[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
