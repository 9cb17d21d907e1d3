"""The fault tables of an experiment as values, and their mistakes that concern several keys."""

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Annotated, Any, Literal, NamedTuple, get_args

from pydantic import BeforeValidator, Field

from faults.base import Target
from faults.errors import FaultError
from faults.registry import FAULTS, create
from harness.experiment.tables import Duration, Mistake, Model, Slug, nearest
from harness.hosts.base import Nic
from harness.systems.base import Expectation
from r2ccl_core.model.health import RETURN_S
from r2ccl_core.units import format_size
from reports.metrics.view import COMES_AND_GOES

MIN_LASTS_S = 0.06
"""The shortest failure: with less, the counters have too few samples to prove anything."""

BACK_S = 2 * RETURN_S
"""How long after a repair its NIC is back for every system: it carried again after 0.33 s, and where the ranks agree on
a schedule, they counted it again `RETURN_S` later."""

MAX_DRAWN = 100_000
"""Failures by chance in the longest trial; they are drawn before it begins."""


def _read_rail(value: object) -> object:
    if value is not None and value != "random" and (isinstance(value, bool) or not isinstance(value, int)):
        raise ValueError("must be the number of a rail, without quotes, or 'random'")
    return value


def _read_expect(value: object) -> object:
    told = list(value.values()) if isinstance(value, dict) else [value]
    if value is not None and not all(isinstance(one, str) and one in get_args(Expectation) for one in told):
        raise ValueError("must be 'ok', 'failed' or 'either', or a table of these by system, such as { gloo = \"ok\" }")
    return value


class PlaceModel(Model):
    """Where a failure happens: a NIC by name or by rail; ``random`` is drawn, ``busiest`` is looked up."""

    host: str | None = None
    nic: str | None = None
    rail: Annotated[int | Literal["random"] | None, BeforeValidator(_read_rail)] = None
    parameters: dict[str, Any] = Field(default_factory=dict)
    lasts_s: Duration | None = Field(default=None, alias="lasts")
    """Time from the effect to the heal; by default the heal comes at the end of the trial."""


class AlsoModel(PlaceModel):
    """A further failure, this long after the effect of the aimed one."""

    kind: str
    after_s: Duration = Field(default=0.0, alias="after")


class TraceEvent(PlaceModel):
    """One failure of a trace, this long after the beginning of the first timed iteration."""

    kind: str
    at_s: Duration = Field(alias="at")


class ChoiceModel(Model):
    """One kind of failure that may be drawn."""

    kind: str
    parameters: dict[str, Any] = Field(default_factory=dict)
    weight: float = Field(default=1.0, gt=0, le=1e9)


class FaultModel(PlaceModel):
    """One fault scenario: what breaks, where, and when. Every trial of the grid has exactly one.

    It has one failure aimed into an iteration, with `times` and `also` for more; or failures by chance (`mtbf`, `mttr`,
    from `choices`); or those of a trace.
    """

    name: Slug | None = None
    kind: str = ""
    at_iteration: int | None = Field(default=None, ge=0)
    at_time_s: Duration | None = Field(default=None, alias="at_time")
    """The first iteration that begins this long after the first timed one."""
    at_progress: float | None = Field(default=None, ge=0, lt=1)
    """The iteration at this share of all iterations."""
    into: float = Field(default=0.3, ge=0, lt=1)
    """Share of the expected duration of that iteration at which the fault takes effect."""
    after_bytes: float | None = Field(default=None, ge=0, lt=1)
    """Instead of `into`: once the NIC has moved this share of what it moves in an iteration."""
    times: int = Field(default=1, ge=1, le=1000)
    every_s: Duration | None = Field(default=None, alias="every")
    also: tuple[AlsoModel, ...] = ()
    mtbf_s: Duration | None = Field(default=None, alias="mtbf", gt=0)
    """Mean time between failures of the whole cluster."""
    mttr_s: Duration | None = Field(default=None, alias="mttr", gt=0)
    """Mean time to repair."""
    choices: tuple[ChoiceModel, ...] = ()
    events: tuple[TraceEvent, ...] = ()
    """The content of the file that the key ``trace`` names (`harness.experiment.trace`)."""
    expect: Annotated[Expectation | dict[str, Expectation] | None, BeforeValidator(_read_expect)] = None
    """The expected status of the trials, or of those of some systems by name, where it differs from what is expected of
    the system under any fault."""

    @property
    def label(self) -> str:
        """Its name in trial ids."""
        return self.name or self.kind

    @property
    def kinds(self) -> list[str]:
        """Every kind of fault that it may inject, each once."""
        parts: tuple[ChoiceModel | AlsoModel | TraceEvent, ...] = (*self.choices, *self.also, *self.events)
        return [kind for kind in dict.fromkeys([self.kind, *(part.kind for part in parts)]) if kind]

    def expected_of(self, system: str) -> Expectation | None:
        """What this table says of a system's trial; None: nothing."""
        return self.expect.get(system) if isinstance(self.expect, dict) else self.expect

    @property
    def by_chance(self) -> bool:
        """Whether its failures come by the clock instead of being aimed into an iteration."""
        return self.mtbf_s is not None or bool(self.events)

    @property
    def several(self) -> bool:
        """Whether it is several failures; those by chance may be any number."""
        return self.mtbf_s is not None or self.times > 1 or bool(self.also) or len(self.events) > 1

    @property
    def comes_and_goes(self) -> bool:
        """Whether something works again while another failure goes on or is still to come, or may do so: what decides
        is the table, so that trials of one scenario are judged alike, whichever failure stopped them. Failures that all
        stay, or are all repaired at one moment, are one time with something broken, as one is."""
        kinds = [event.kind for event in self.events] or [self.kind, *(also.kind for also in self.also)]
        by_chance_or_again = self.mtbf_s is not None or self.times > 1
        return by_chance_or_again or len(self._ends_s) > 1 or any(kind in COMES_AND_GOES for kind in kinds)

    @property
    def over_s(self) -> float:
        """How long after its first effect the last failure has come, and what lasts for a limited time is repaired; 0
        also if chance or a trace says when."""
        repeated_s = (self.times - 1) * (self.every_s or 0.0) + (self.lasts_s or 0.0)
        return max([repeated_s, *(also.after_s + (also.lasts_s or 0.0) for also in self.also)])

    def iterations_s(self, after_s: float, each_s: float) -> float:
        """How long iterations of `each_s` must take in all, so that they go on for `after_s` after its first effect."""
        if self.at_progress is not None:
            return (after_s + each_s) / (1 - self.at_progress)
        first_s = self.at_time_s or 0.0 if self.at_iteration is None else self.at_iteration * each_s
        return first_s + each_s + after_s

    @property
    def _ends_s(self) -> set[float]:
        """When its failures end, to the microsecond, because 0.1 + 0.2 is not 0.3; infinite: with the trial."""
        begin: list[tuple[float, PlaceModel]] = [(event.at_s, event) for event in self.events]
        begin = begin or [(0.0, self), *((also.after_s, also) for also in self.also)]
        return {inf if one.lasts_s is None else round(from_s + one.lasts_s, 6) for from_s, one in begin}


class FaultContext(NamedTuple):
    """The facts that fault tables are checked against."""

    nics: Mapping[str, Sequence[Nic]]
    """The data NICs of every host."""
    iterations: Mapping[int, int]
    """Iterations by size in bytes."""
    counts: str
    """What they are called, which is also the key of their number."""
    systems: Sequence[str]
    has_nics: bool
    trial_s: float
    """The longest duration of a trial."""

    def of(self, host: str | None) -> list[Nic]:
        """The NICs of one host; those of all hosts if the host is not named, or not known."""
        return list(self.nics.get(host or "") or (nic for nics in self.nics.values() for nic in nics))


def fault_mistakes(faults: Sequence[FaultModel], context: FaultContext) -> Iterator[Mistake]:
    """All mistakes between keys that are each valid by themselves."""
    for index, fault in enumerate(faults):
        key = f"fault[{index}]"
        yield from _when_mistakes(fault, context, key)
        yield from _late_mistakes(fault, context.trial_s, key)
        yield from _which_mistakes(fault, context, key)
        yield from _idle_mistakes(fault, key)
        for system in fault.expect if isinstance(fault.expect, dict) else ():
            if system not in context.systems:
                yield Mistake(f"{key}.expect.{system}", None, f"no such system; {nearest(system, context.systems)}")
        for place, kind, where in _places(fault, key):
            yield from _place_mistakes(place, kind, where, context, optional=fault.mtbf_s is not None)
            yield from _length_mistakes(place, kind, where, by_chance=fault.mtbf_s is not None)


def _places(fault: FaultModel, key: str) -> Iterator[tuple[PlaceModel, str, str]]:
    """Every part of a table that names a place, with its kind and its key."""
    if not fault.events and not fault.choices:
        yield fault, fault.kind, key
    for choice in fault.choices:
        place = PlaceModel(host=fault.host, nic=fault.nic, rail=fault.rail, parameters=choice.parameters)
        yield place, choice.kind, f"{key}.choices"
    for number, also in enumerate(fault.also):
        yield also, also.kind, f"{key}.also[{number}]"
    for number, event in enumerate(fault.events):
        yield event, event.kind, f"{key}.trace[{number}]"


def _when_mistakes(fault: FaultModel, context: FaultContext, key: str) -> Iterator[Mistake]:
    given = [name for name in ("at_iteration", "at_time_s", "at_progress") if getattr(fault, name) is not None]
    written = ", ".join(name.removesuffix("_s") for name in given) or None
    if fault.by_chance and given:
        yield Mistake(key, written, "mtbf or a trace says when; leave out at_iteration, at_time and at_progress")
    if not fault.by_chance and len(given) != 1:
        yield Mistake(key, written, "give exactly one of at_iteration, at_time, at_progress")
    for size, count in context.iterations.items():
        if fault.at_iteration is not None and fault.at_iteration >= count:
            whose, last = format_size(size) if size else "the workload", f" to {count - 1}" if count > 1 else ""
            one = context.counts if count > 1 else context.counts.removesuffix("s")
            remedy = f"{whose} has only the {one} 0{last}; raise workload.{context.counts}"
            yield Mistake(f"{key}.at_iteration", fault.at_iteration, remedy)
            return


def _late_mistakes(fault: FaultModel, trial_s: float, key: str) -> Iterator[Mistake]:
    """Failures that would come when every trial is over, and so never."""
    for where, duration_s, comes in _latest(fault, trial_s):
        remedy = f"{comes}no trial lasts so long: sweep.limits.trial is {trial_s:g} s"
        yield Mistake(f"{key}.{where}", f"{duration_s:g} s", f"{remedy}; choose an earlier time, or raise it")


def _latest(fault: FaultModel, trial_s: float) -> Iterator[tuple[str, float, str]]:
    """The durations of a table that end after `trial_s`: their key and value, and when the failure comes if another
    duration adds to that."""
    for number, event in enumerate(fault.events):
        if event.at_s > trial_s:
            yield f"trace[{number}].at", event.at_s, ""
    if fault.by_chance:
        return
    first_s, every_s = fault.at_time_s or 0.0, fault.every_s or 0.0
    if first_s > trial_s:
        yield "at_time", first_s, ""
        return
    if (last_s := first_s + (fault.times - 1) * every_s) > trial_s:
        yield "every", every_s, f"the last of {fault.times} comes after {last_s:g} s, and "
    for number, also in enumerate(fault.also):
        if (at_s := first_s + also.after_s) > trial_s:
            yield f"also[{number}].after", also.after_s, f"comes after {at_s:g} s, and " if first_s else ""


def _which_mistakes(fault: FaultModel, context: FaultContext, key: str) -> Iterator[Mistake]:
    if not fault.kind and fault.mtbf_s is not None and "choices" in fault.model_fields_set and not fault.choices:
        yield Mistake(f"{key}.choices", "[]", "has no kind to choose from; give at least one, or kind instead")
    elif not fault.kind and not fault.choices and not fault.events:
        yield Mistake(f"{key}.kind", None, "is missing; add it")
    elif not fault.label:
        yield Mistake(f"{key}.name", None, "is missing; a table without kind needs a name")
    if fault.choices and fault.mtbf_s is None:
        yield Mistake(f"{key}.choices", None, "chance chooses only with mtbf; add it, or use kind")
    if fault.mtbf_s is not None and fault.events:
        yield Mistake(f"{key}.mtbf", fault.mtbf_s, "goes with no trace; choose one")
    if fault.mtbf_s is not None and (drawn := context.trial_s / fault.mtbf_s) > MAX_DRAWN:
        remedy = f"makes {drawn:.3g} failures in the {context.trial_s:g} s of sweep.limits.trial; at most {MAX_DRAWN}"
        yield Mistake(f"{key}.mtbf", f"{fault.mtbf_s:g} s", remedy)
    if fault.times > 1 and (fault.every_s is None or fault.lasts_s is None):
        yield Mistake(f"{key}.times", fault.times, "needs every and lasts")
    elif fault.times > 1 and (fault.lasts_s or 0.0) >= (fault.every_s or 0.0):
        yield Mistake(
            f"{key}.lasts", _ms(fault.lasts_s or 0.0), "must be shorter than every: it is healed before it comes again"
        )


def _idle_mistakes(fault: FaultModel, key: str) -> Iterator[Mistake]:
    """Keys that have no effect beside the others."""
    if fault.by_chance:
        instead = "mtbf, mttr and choices" if fault.mtbf_s is not None else "the trace"
        given = {"times": fault.times > 1, "every": fault.every_s, "also": fault.also, "lasts": fault.lasts_s}
        for name in [name for name, value in (given | {"after_bytes": fault.after_bytes}).items() if value]:
            yield Mistake(f"{key}.{name}", None, f"is for a failure that is aimed; {instead} say when and how long")
    elif fault.every_s is not None and fault.times == 1:
        yield Mistake(f"{key}.every", _ms(fault.every_s), "does nothing without times; say how many")
    if fault.after_bytes is not None and fault.into != type(fault).model_fields["into"].default:
        yield Mistake(f"{key}.into", fault.into, "does nothing beside after_bytes, which stands for it; choose one")
    if fault.mttr_s is not None and fault.mtbf_s is None:
        yield Mistake(f"{key}.mttr", _ms(fault.mttr_s), "goes with mtbf only; use lasts, or add mtbf")


def _length_mistakes(place: PlaceModel, kind: str, key: str, *, by_chance: bool) -> Iterator[Mistake]:
    """Failures that need a longer duration, or a limited one."""
    fault = FAULTS.get(kind)
    if fault is None:
        return
    if by_chance and fault.scope == "host":
        yield Mistake(f"{key}.kind", kind, "chance leaves every host a NIC; aim it, or write a trace")
    if fault.must_end and place.lasts_s is None and not by_chance:
        yield Mistake(f"{key}.lasts", None, "is missing; a rank that is never let go on is a hang")
    if place.lasts_s is not None and place.lasts_s < MIN_LASTS_S and fault.scope != "process":
        remedy = f"is too short to prove anything; choose at least {_ms(MIN_LASTS_S)}"
        yield Mistake(f"{key}.lasts", _ms(place.lasts_s), remedy)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:g} ms"


def _place_mistakes(
    place: PlaceModel, kind: str, key: str, context: FaultContext, *, optional: bool
) -> Iterator[Mistake]:
    """The mistakes in one place; with `optional`, parts that are not named are drawn."""
    try:
        scope = create(kind, place.parameters).scope
    except FaultError as error:
        if kind in FAULTS:
            yield Mistake(f"{key}.parameters", None, str(error))
        elif kind:
            yield Mistake(f"{key}.kind", kind, str(error))
        return
    if not context.has_nics and kind != "noop":
        yield Mistake(f"{key}.kind", kind, 'a noop cluster has no NICs; use cluster.kind = "local"')
    if place.host is None and scope != "rail" and not optional:
        yield Mistake(f"{key}.host", None, "is missing; name a host, or 'random'")
    elif place.host not in (None, "random", *context.nics):
        yield Mistake(f"{key}.host", place.host, f"no such host; {nearest(str(place.host), list(context.nics))}")
    yield from _nic_mistakes(place, key, context)
    if scope in ("host", "process") and place.rail is not None and not optional:
        yield Mistake(f"{key}.rail", place.rail, f"{kind} is about a host, whichever NICs it has; leave it out")
    unnamed = place.nic is None and place.rail is None
    if scope in ("nic", "rail") and unnamed and not optional:
        yield Mistake(f"{key}.nic", None, "is missing; name a NIC or a rail, or 'random' or 'busiest'")


def _nic_mistakes(place: PlaceModel, key: str, context: FaultContext) -> Iterator[Mistake]:
    if place.nic is not None and place.rail is not None:
        yield Mistake(f"{key}.rail", place.rail, "give nic or rail, not both")
    rails = sorted({nic.rail for nic in context.of(place.host)})
    if isinstance(place.rail, int) and place.rail not in rails:
        yield Mistake(f"{key}.rail", place.rail, f"no such rail; there are {', '.join(map(str, rails)) or 'none'}")
    if place.nic in (None, "random", "busiest"):
        return
    try:
        Target(place.host or "", place.nic)
    except FaultError as error:
        yield Mistake(f"{key}.nic", place.nic, str(error))
        return
    names = list(dict.fromkeys(nic.name for nic in context.of(place.host) if nic.name))
    if place.nic not in names:
        remedy = nearest(place.nic, names) if names else "the host alone knows its NICs' names; give rail = 0"
        yield Mistake(f"{key}.nic", place.nic, f"no such NIC; {remedy}")
