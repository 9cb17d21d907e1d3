"""Checks an experiment's requirements on this machine before anything is changed: one line for each that is missing."""

import os
import shutil
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

from faults.registry import FAULTS
from harness.backends.registry import BACKENDS
from harness.backends.simulate import SIMULATE
from harness.cluster.spec import InventorySpec
from harness.errors import ExperimentError, InvalidExperimentError
from harness.experiment.file import variants
from harness.experiment.model import Experiment
from harness.sweep.memory import check_machine
from harness.workloads.training import TrainingWorkload

SYSTEM_PATH = os.pathsep.join(("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"))
"""The PATH on which the hosts of a local cluster look for programs, whatever this shell's PATH is."""


def preflight(experiment: Experiment, file: str, systems: Collection[str] | None = None) -> None:
    """Raises `InvalidExperimentError` with a line for everything that is missing here, at any point of the axes. Of
    systems, it asks only what those named `systems` need, if given.

    Hosts of an inventory are other machines: `harness cluster check` checks those. A simulated trial injects no fault
    here.
    """
    if isinstance(experiment.cluster, InventorySpec):
        return
    found = {str(e): e for variant in variants(experiment, file) for e in _lacks(variant.experiment, file, systems)}
    if found:
        raise InvalidExperimentError(list(found.values()))


def check_text(experiment: Experiment, file: str) -> None:
    """Raises `InvalidExperimentError` if the text of a training cannot be used, at any point of the axes: a part of
    what the experiment says, and so also asked by a dry run."""
    found = {str(e): e for variant in variants(experiment, file) for e in _text(variant.experiment, file)}
    if found:
        raise InvalidExperimentError(list(found.values()))


def _lacks(experiment: Experiment, file: str, systems: Collection[str] | None) -> Iterator[ExperimentError]:
    yield from _programs(experiment, file)
    no_python = list(_python(experiment, file))
    yield from no_python
    if not no_python:  # which could be asked nothing
        yield from _backend(experiment, file, systems)
    yield from _text(experiment, file)
    yield from check_machine(experiment, file)


def _programs(experiment: Experiment, file: str) -> Iterator[ExperimentError]:
    if _is_simulated(experiment):
        return
    for index, fault in enumerate(experiment.faults):
        for kind in fault.kinds:
            for program in sorted(FAULTS[kind].needs):
                if shutil.which(program, path=SYSTEM_PATH) is None:
                    remedy = f"needs the program {program!r}, which is not here; install it"
                    yield ExperimentError(file, f"fault[{index}].kind", kind, remedy)


def _is_simulated(experiment: Experiment) -> bool:
    return {experiment.backend_of(system) for system in experiment.systems} == {SIMULATE}


def _python(experiment: Experiment, file: str) -> Iterator[ExperimentError]:
    python = experiment.cluster.python
    if python is not None and not os.access(Path(python), os.X_OK):
        yield ExperimentError(file, "cluster.python", python, "no such program; name a Python's path")


def _text(experiment: Experiment, file: str) -> Iterator[ExperimentError]:
    """The text of a training, where the hosts have this machine's files."""
    work = experiment.workload
    if not isinstance(work, TrainingWorkload) or not work.text:
        return
    if experiment.cluster.kind != "local" or _is_simulated(experiment):
        return
    path, needed = Path(work.text), work.context + 1
    if path.exists() and not path.is_file():
        what = "is a folder" if path.is_dir() else "is no file that can be read again and again"
        yield ExperimentError(file, "workload.text", work.text, f"{what}; name a file with a text on every host")
    elif not path.is_file():
        yield ExperimentError(file, "workload.text", work.text, "there is no such file; name a text on every host")
    elif path.stat().st_size < needed:
        remedy = f"has {path.stat().st_size} bytes, and a sequence needs {needed}; name a longer text"
        yield ExperimentError(file, "workload.text", work.text, remedy)


def _backend(experiment: Experiment, file: str, systems: Collection[str] | None) -> Iterator[ExperimentError]:
    """Requirements of backends that are missing, and paths that do not exist."""
    python = experiment.cluster.python or sys.executable
    kept = [system for system in experiment.systems if systems is None or system.name in systems]
    for backend in dict.fromkeys(map(experiment.backend_of, kept)):
        missing = BACKENDS[backend].missing(experiment.workload, python)
        if missing is not None:
            yield ExperimentError(file, "workload.backend", backend, missing)
    for index, system in enumerate(experiment.systems):
        if system in kept and system.path is not None and "/" in system.path and not Path(system.path).is_file():
            yield ExperimentError(file, f"system[{index}].path", system.path, "there is no such file")
