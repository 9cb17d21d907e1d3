"""Whether the kernels and programs of the hosts can do what the experiment's faults ask for.

Tried in an empty network namespace of each host's own, before the first trial; no NIC is touched.
"""

import os
import shlex
from collections.abc import Iterator

from faults.base import Fault
from faults.errors import FaultError
from faults.registry import FAULTS, create
from harness.errors import ExperimentError, InvalidExperimentError
from harness.fault_tables import FaultModel
from harness.hosts.base import Completed, Host
from harness.hosts.each import all_results, for_each
from harness.sweep.bench import Bench
from harness.sweep.scenario import strikes
from harness.sweep.targets import asked


def rehearse(bench: Bench) -> None:
    """Raises `InvalidExperimentError` with a line for every fault that a host, or its target, cannot make."""
    name = bench.experiment.name
    found = [
        ExperimentError(name, f"fault[{index}].kind", kind, why)
        for index, fault in enumerate(bench.experiment.faults)
        for kind in kinds(fault)
        for why in (*_lacks(bench, FAULTS[kind]), *_refused(bench, fault, kind))
    ]
    if found:
        raise InvalidExperimentError(found)


def kinds(fault: FaultModel) -> list[str]:
    """Every kind of fault that a table may inject, once."""
    named = [
        fault.kind,
        *(c.kind for c in fault.choices),
        *(a.kind for a in fault.also),
        *(e.kind for e in fault.events),
    ]
    return [kind for kind in dict.fromkeys(named) if kind]


def _refused(bench: Bench, fault: FaultModel, kind: str) -> Iterator[str]:
    """The first target of this kind, of those that the first repeat draws, that cannot or must not be hit."""
    seed = f"{bench.experiment.sweep.seed}/{fault.label}/0"
    for strike in strikes(fault, bench.data_nics, seed, bench.experiment.sweep.limits.trial_s):
        if strike.kind == kind:
            try:
                for target in asked(strike, bench.data_nics, bench.places, dict.fromkeys(bench.places, os.getpid())):
                    create(kind, strike.parameters).recipe(target)
            except FaultError as error:
                yield str(error)
            return


def _lacks(bench: Bench, fault: type[Fault]) -> Iterator[str]:
    """The first host's complaint, with the number of hosts that say the like."""
    if not fault.rehearsal:
        return
    script = " && ".join(shlex.join(argv) for argv in fault.rehearsal)  # our own words, none of a user's

    def tried(place: Host) -> Completed:
        return place.run(("unshare", "--net", "sh", "-c", script), check=False)

    failed = {n: r for n, r in all_results(for_each(bench.places.values(), tried)).items() if r.returncode}
    for name, result in list(failed.items())[:1]:
        said = (result.stderr.strip().splitlines() or [f"exit status {result.returncode}"])[0]
        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        yield f"the kernel of {name}{more} cannot make it ({said}); load the module, or leave this fault out"
