"""Checks that the hosts' kernels and programs can do what the experiment's faults need.

The checks run in an empty network namespace of each host, before the first trial; no NIC is touched.
"""

import os
import shlex
from collections.abc import Callable, Collection, Iterator, Sequence

from faults.base import Fault
from faults.errors import FaultError
from faults.registry import FAULTS, create
from harness.errors import ExperimentError, HostError, InvalidExperimentError, UnreachableError
from harness.experiment.fault_tables import FaultModel
from harness.hosts.base import Argv, Completed, Host
from harness.hosts.each import all_results, for_each
from harness.sweep.scenario import injections
from harness.sweep.targets import asked
from harness.sweep.testbed import HostTestbed


def rehearse(testbed: HostTestbed, labels: Collection[str] | None = None) -> None:
    """Raises `InvalidExperimentError` with a line for every fault (of `labels`, if given) that a host cannot make."""
    name = testbed.experiment.name
    found = [
        ExperimentError(name, f"fault[{index}].kind", kind, why)
        for index, fault in enumerate(testbed.experiment.faults)
        if labels is None or fault.label in labels
        for kind in fault.kinds
        for why in _impossible(testbed, fault, kind)
    ]
    if found:
        raise InvalidExperimentError(found)


def _impossible(testbed: HostTestbed, fault: FaultModel, kind: str) -> Iterator[str]:
    """Why the first target of this kind cannot be hit, or what is missing on the places that inject it."""
    try:
        names = _places(testbed, fault, kind)
        yield from _lacks([testbed.place(name) for name in names], FAULTS[kind])
    except UnreachableError:
        raise
    except (FaultError, HostError) as error:
        yield str(error)


def _places(testbed: HostTestbed, fault: FaultModel, kind: str) -> list[str]:
    """All hosts that may be hit, and the switches on which the first injection of the first repeat acts.

    Raises `FaultError` if that injection cannot, or must not, be made.
    """
    seed = f"{testbed.experiment.sweep.seed}/{fault.label}/0"
    drawn = injections(fault, testbed.data_nics, seed, testbed.experiment.sweep.limits.trial_s)
    hosts = [host.name for host in testbed.hosts]
    for injection in [injection for injection in drawn if injection.kind == kind][:1]:
        targets = asked(injection, testbed.data_nics, testbed.places, dict.fromkeys(testbed.places, os.getpid()))
        recipes = [create(kind, injection.parameters).recipe(target) for target in targets]
        acting = dict.fromkeys(place for recipe in recipes for place in recipe.places)
        return list(acting) if acting.keys().isdisjoint(hosts) else list(dict.fromkeys([*hosts, *acting]))
    return hosts


def _lacks(places: Sequence[Host], fault: type[Fault]) -> Iterator[str]:
    """The first place's complaint, with the number of places that have a similar one."""
    tell = "".join(f"command -v {program} >/dev/null || echo {program}\n" for program in sorted(fault.needs))
    missing = _complaints(places, ("sh", "-c", tell), lambda done: " and ".join(done.stdout.split()))
    if missing:
        yield f"needs {missing[1]} on {missing[0]}; install it there"
        return
    script = " && ".join(shlex.join(argv) for argv in fault.rehearsal)  # no word of these commands comes from a user
    refused = _complaints(places, ("unshare", "--net", "sh", "-c", script), _refusal) if script else None
    if refused:
        yield f"the kernel of {refused[0]} cannot make it ({refused[1]}); load the module, or leave this fault out"


def _complaints(places: Sequence[Host], argv: Argv, complaint: Callable[[Completed], str]) -> tuple[str, str] | None:
    """The places that complain, in words, and the complaint of the first."""
    said = all_results(for_each(places, lambda place: complaint(place.run(argv, check=False))))
    odd = {name: text for name, text in said.items() if text}
    more = f" (and {len(odd) - 1} more)" if len(odd) > 1 else ""
    return next(((name + more, text) for name, text in odd.items()), None)


def _refusal(done: Completed) -> str:
    """The first output of a rehearsal that failed; empty if it succeeded."""
    return (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[0] if done.returncode else ""
