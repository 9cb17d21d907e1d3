"""How often, in which order and over which values an experiment runs: the models of `[sweep]` and `[[axis]]`.

Every experiment is a grid of system x size x fault x repeat. An axis adds a dimension: one key of the file with several
values, or several keys whose values go together.

    [[axis]]                                        [[axis]]
    key = "workload.dtype"                          name = "threads"
    values = ["float32", "float16"]                 keys = ["system.env.R2CC_IO_THREADS", "fault[0].into"]
                                                    values = [["1", 0.2], ["2", 0.8]]
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer

from harness.experiment.keys import KeyPathError, steps
from harness.experiment.tables import Duration, Mistake, Model, read_share

GRID = ("system", "size", "fault", "repeat")
"""The dimensions that every experiment has."""

HEALTHY, HEALTHY_BEFORE, HEALTHY_AFTER = "healthy", "healthy_before", "healthy_after"
"""Names of trials without a fault on the dimension of faults."""

MAX_REPEATS = 10_000

MAX_TRIALS = 100_000
"""A larger grid counts as a mistake: at one second per trial it would last longer than a day."""

MAX_TEXT = 40
"""Characters of a value's text; a longer value needs a label."""

_FIXED = {
    "schema": "is the version of the file",
    "name": "names the whole experiment",
    "description": "describes the whole experiment",
    "axis": "cannot be an axis itself",
    "bound": "holds for all trials that it names",
    "sweep": "is about the sweep as a whole",
    "workload.sizes": "is an axis already; list the sizes there",
    "system.name": "is an axis already; write one [[system]] for each",
    "fault.name": "is an axis already; write one [[fault]] for each",
}
"""Keys that no axis may have, and why."""


def _repeats(value: object) -> object:
    """A plain number is that many repeats."""
    if isinstance(value, dict | RepeatsModel):
        return value
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError('must be a whole number, or a table like {min = 3, max = 20, until = "5 %"}')
    if not 1 <= value <= MAX_REPEATS:
        raise ValueError("must be at least 1" if value < 1 else f"must be at most {MAX_REPEATS}")
    return {"min": value, "max": value}


class RepeatsModel(Model):
    """The number of repeats: at least `min`; then until every cell is known precisely enough, at most `max`."""

    min: int = Field(default=3, ge=1, le=MAX_REPEATS)
    max: int = Field(ge=1, le=MAX_REPEATS)
    until: Annotated[float, BeforeValidator(read_share), Field(gt=0, lt=1)] | None = None
    """Half the width of the 95 % interval of a cell's median bus bandwidth, over that median."""


def _as_written(repeats: RepeatsModel) -> object:
    if repeats.until is None:
        return repeats.max
    return {"min": repeats.min, "max": repeats.max, "until": repeats.until}


class LimitsModel(Model):
    """The longest duration of each wait in a trial. Ranks that are silent for longer once something is broken, and
    whose NICs carry no data any more, hang, and the trial failed; every other wait that ends so leaves it
    inconclusive, and so does a silence of less than 5 s (`harness.sweep.expectation.HANG_S`). Libraries that would wait
    for minutes or for ever give up after ``give_up``, or ten times what a collective should take if that is longer."""

    ready_s: Duration = Field(default=20.0, alias="ready", gt=0)
    iteration_s: Duration = Field(default=15.0, alias="iteration", gt=0)
    """By default longer than our core looks for a host that no NIC reaches: 10 s."""
    trial_s: Duration = Field(default=120.0, alias="trial", gt=0)
    give_up_s: Duration = Field(default=3.0, alias="give_up", gt=0)


class SweepModel(Model):
    """How often and in which order trials run."""

    repeats: Annotated[RepeatsModel, BeforeValidator(_repeats), PlainSerializer(_as_written)] = RepeatsModel(
        min=1, max=1
    )
    seed: int = 0
    retries: int = Field(default=2, ge=0, le=100)
    order: Literal["shuffled", "listed"] = "shuffled"
    healthy: Literal["off", "ends", "blocks"] = "off"
    """Trials without a fault, for every system and size: before and after the whole sweep, or in every repeat."""
    limits: LimitsModel = LimitsModel()


class AxisModel(Model):
    """One dimension: the values of one key, or of several keys together."""

    name: str | None = Field(default=None, pattern=r"^[A-Za-z][A-Za-z0-9_]*$", max_length=40)
    key: str | None = None
    keys: tuple[str, ...] = ()
    values: tuple[Any, ...] = Field(min_length=1)
    labels: tuple[str, ...] = ()
    """Names of the values in ids and tables, if the values do not speak for themselves."""

    @property
    def label(self) -> str:
        """Its name in ids, in `--only` and in tables: by default the last part of its first key."""
        return self.name or self._paths[0].rpartition(".")[2].partition("[")[0]

    @property
    def _paths(self) -> tuple[str, ...]:
        return self.keys or (self.key or "",)

    @property
    def is_about_faults(self) -> bool:
        """Whether only faults change along it, so that a healthy trial is the same everywhere on it."""
        return all(steps(path)[0] == "fault" for path in self._paths)

    def points(self) -> list[tuple[str, dict[str, Any]]]:
        """Every value: its label, and the keys it sets."""
        rows = [tuple(value) if self.keys else (value,) for value in self.values]
        texts = self.labels or ["+".join(map(_text, row)) for row in rows]
        return [(text, dict(zip(self._paths, row, strict=True))) for text, row in zip(texts, rows, strict=True)]

    def mistakes(self, at: str) -> Iterator[Mistake]:
        """Its mistakes; `at` is its place in the file."""
        if (self.key is None) == (not self.keys):
            yield Mistake(at, None, "give either key or keys")
            return
        for path in self._paths:
            yield from _key_mistakes(path, at)
        for row in self.values if self.keys else ():
            if not isinstance(row, list | tuple) or len(row) != len(self.keys):
                yield Mistake(f"{at}.values", row, f"each value must be a list of {len(self.keys)}, one for each key")
                return
        if self.labels and len(self.labels) != len(self.values):
            yield Mistake(f"{at}.labels", len(self.labels), f"give one for each of the {len(self.values)} values")
            return
        texts = [text for text, _ in self.points()]
        alike = Counter(map(fit, texts))
        where = f"{at}.{'labels' if self.labels else 'values'}"
        for text in texts:
            if not 0 < len(text) <= MAX_TEXT:
                yield Mistake(where, text, f"give labels of 1 to {MAX_TEXT} characters, one for each value")
                return
            if alike[fit(text)] > 1:
                remedy = "give every value its own" if self.labels else "give labels"
                yield Mistake(where, text, f"is there more than once, or too like another; {remedy}")
                return
        if self.label in GRID:
            yield Mistake(f"{at}.name", self.label, "is a dimension of every sweep; choose another name")


def fit(text: str) -> str:
    """`text` made fit for a part of a folder's name: no slash, no blank, and no dash, which separates the parts of a
    trial's id."""
    return re.sub(r"[^A-Za-z0-9._+]", "_", text)


def axis_mistakes(axes: Sequence[AxisModel], trials_without: int) -> Iterator[Mistake]:
    """The mistakes in the axes; `trials_without` is the number of trials without them."""
    found = [mistake for i, axis in enumerate(axes) for mistake in axis.mistakes(f"axis[{i}]")]
    yield from found
    if found:
        return
    labels, paths = [axis.label for axis in axes], [path for axis in axes for path in axis._paths]
    for index, label in enumerate(labels):
        if label in labels[:index]:
            yield Mistake(f"axis[{index}].name", label, "is there already; give every axis its own name")
    for path in dict.fromkeys(p for p in paths if paths.count(p) > 1):
        yield Mistake("axis", path, "is set by more than one axis; one key belongs to one axis")
    counts = [len(axis.values) for axis in axes]
    total = trials_without
    for count in counts:
        total *= count
    if total > MAX_TRIALS:
        product = " x ".join(f"{count} {label}" for count, label in zip(counts, labels, strict=True))
        shown = f"{trials_without} trials" + (f" x {product}" if product else "")
        remedy = f"{shown} make {total} trials; at most {MAX_TRIALS} run in one sweep"
        yield Mistake("axis" if axes else "sweep.repeats", None, remedy)


def repeats_mistakes(repeats: RepeatsModel) -> Iterator[Mistake]:
    """The mistakes between the keys of `sweep.repeats`."""
    if repeats.min > repeats.max:
        yield Mistake("sweep.repeats.min", repeats.min, f"must be at most max, which is {repeats.max}")
    elif repeats.until is None and repeats.min != repeats.max:
        yield Mistake("sweep.repeats.until", None, 'is missing; add it, for example "5 %"')
    elif repeats.until is not None and repeats.min < 2:
        yield Mistake("sweep.repeats.min", repeats.min, "one repeat has no interval; at least 2 are needed")


def _key_mistakes(path: str, at: str) -> Iterator[Mistake]:
    try:
        names = [step for step in steps(path) if isinstance(step, str)]
    except KeyPathError as error:
        yield Mistake(f"{at}.key", path, str(error))
        return
    for fixed in (names[0], ".".join(names[:2])):
        if fixed in _FIXED:
            yield Mistake(f"{at}.key", path, _FIXED[fixed])
            return


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return "+".join(map(_text, value))
    if isinstance(value, dict):
        return "+".join(f"{key}:{_text(part)}" for key, part in value.items())
    # No comma: it separates the selections of --only.
    return f"{value:.15g}" if isinstance(value, float) else str(value).replace(",", "+")
