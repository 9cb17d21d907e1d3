"""Findings about software and hardware that must be alike on all hosts: this package, NCCL, drivers, GPUs. Pure."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from harness.cluster.checks.evidence import Evidence
from harness.cluster.checks.finding import Finding, error, note, ok, warning

TCP = "TCP's congestion control"
DRIVER_REMEDY = "install the same driver on all hosts"


def findings(seen: Evidence) -> Iterator[Finding]:
    """Findings about every host that was reached, and about differences between hosts."""
    for name, survey in seen.surveys.items():
        yield from _package(name, survey.facts["package"])
        yield from _nccl(name, survey.facts["nccl"])
        yield from _gpus(seen, name, survey.facts["gpus"])
    yield from _differing(seen, "package", "r2ccl", _package_of, "install the same release on all hosts", error)
    yield from _differing(seen, "package", "plugin", _plugin_of, "build it from the same source everywhere", warning)
    yield from _differing(seen, "nccl", "NCCL", _nccl_of, "install the same NCCL on all hosts", error)
    yield from _differing(seen, "gpus", "NVIDIA driver", lambda f: f["gpus"].get("driver"), DRIVER_REMEDY, warning)
    yield from _differing(seen, "gpus", "GPUs", _gpus_of, "results of unlike hosts are hard to compare", warning)
    yield from _differing(seen, "tcp", TCP, lambda f: f["congestion_control"], "set the same on all hosts", warning)
    yield from _differing(seen, "kernel", "kernel", lambda facts: facts["kernel"], "no fault, but worth knowing", note)


def _package(name: str, package: Mapping[str, Any]) -> Iterator[Finding]:
    if package.get("version"):
        yield ok("package", name, f"its Python has r2ccl {package['version']}")
        if not package.get("plugin"):
            what = "its r2ccl has no NCCL plugin"
            yield note("package", name, what, "build it with a C++ compiler there, if NCCL shall run over it")
    elif "failed" not in package:
        remedy = "pip install r2ccl there, and name that Python in the inventory (python = ...)"
        yield error("package", name, f"its Python has no r2ccl, so ranks cannot run: {package.get('why')}", remedy)


def _nccl(name: str, libraries: Any) -> Iterator[Finding]:
    if not isinstance(libraries, list):
        return
    versions = sorted({library["version"] for library in libraries})
    if len(versions) > 1:
        shown = ", ".join(f"{library['version']} in {library['path']}" for library in libraries)
        what = f"has several NCCLs: {shown}"
        yield note("nccl", name, what, "make sure which one is loaded (LD_LIBRARY_PATH)")
    elif not versions:
        yield note("nccl", name, "no NCCL was found", "none is needed but for experiments with GPUs")
    else:
        yield ok("nccl", name, f"has NCCL {versions[0]}")


def _gpus(seen: Evidence, name: str, gpus: Mapping[str, Any]) -> Iterator[Finding]:
    wanted = next(host.gpus for host in seen.inventory.hosts if host.name == name)
    count = gpus.get("count", 0)
    if gpus.get("missing") == "pynvml" and gpus.get("driver_loaded"):
        yield warning("gpus", name, "its Python has no pynvml", "pip install nvidia-ml-py there")
    if gpus.get("driver_loaded") and not count:
        what = f"has an NVIDIA driver and shows no GPU: {gpus.get('why') or 'nvidia-smi fails'}"
        yield error("gpus", name, what, "run nvidia-smi there; a reboot after an update of the driver often helps")
    elif wanted is not None and wanted != count:
        what = f"shows {count} GPUs, the inventory says {wanted}"
        yield error("gpus", name, what, "correct the inventory, or look for the missing GPU (nvidia-smi, dmesg)")
    elif count:
        yield ok("gpus", name, f"has {count} GPUs, driver {gpus.get('driver')}")
    else:
        yield note("gpus", name, "has no GPU", "none is needed but for experiments with NCCL")


def _package_of(facts: Mapping[str, Any]) -> object:
    return facts["package"].get("version")


def _plugin_of(facts: Mapping[str, Any]) -> object:
    return facts["package"].get("plugin_digest")


def _nccl_of(facts: Mapping[str, Any]) -> object:
    known = {library["version"] for library in facts["nccl"]} if isinstance(facts["nccl"], list) else set()
    return ", ".join(sorted(known)) or None


def _gpus_of(facts: Mapping[str, Any]) -> object:
    kinds = Counter(facts["gpus"].get("names", ()))
    return ", ".join(f"{count} x {kind}" for kind, count in sorted(kinds.items())) or None


def _differing(
    seen: Evidence,
    topic: str,
    what: str,
    value: Callable[[Mapping[str, Any]], object],
    remedy: str,
    told: Callable[[str, str, str, str], Finding],
) -> Iterator[Finding]:
    """One finding if the hosts that have a value do not all have the same."""
    by_host = {name: value(survey.facts) for name, survey in seen.surveys.items()}
    values = {shown for shown in by_host.values() if shown is not None}
    if len(values) > 1:
        shown = "; ".join(f"{name} {shown}" for name, shown in by_host.items() if shown is not None)
        yield told(topic, "", f"hosts differ in {what}: {shown}", remedy)
