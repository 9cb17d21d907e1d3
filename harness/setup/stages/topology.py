"""Writes a topology file for NCCL with the rate of each NIC, because NCCL would otherwise use the speed of its port."""

from harness.setup.base import Done, Run, Seen, Stage, State, ToDo, Unneeded
from harness.setup.nccl_topology import topology

_WRITE = "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text(sys.argv[2])"


def judge(seen: Seen) -> State:
    """The file lies beside the package; ``NCCL_TOPO_FILE`` in a system's environment makes NCCL read it."""
    if not any(device["gpu"] for device in seen.facts["pci"]):
        return Unneeded("has no GPU")
    if seen.prefix is None:
        return Unneeded(f"python = {seen.entry.python!r} names no folder of ours that it could be in")
    path, text = f"{seen.prefix}/nccl_topology.xml", topology(seen.facts["pci"], seen.ports)
    if seen.facts["topology"] == text.strip():
        return Done(f"NCCL_TOPO_FILE={path}")
    run = Run((f"{seen.prefix}/bin/python", "-c", _WRITE, path, text), f"GPUs and NICs, for NCCL_TOPO_FILE={path}")
    return ToDo(f"{path} does not say what the host is like", (run,))


STAGE = Stage("topology", "writes a topology file for NCCL", "stays", judge, ("core", "addresses"))
