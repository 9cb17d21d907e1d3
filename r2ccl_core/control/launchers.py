"""A rank's number and the number of ranks, read from the launcher's variables. Pure.

Launchers are torchrun, mpirun and Slurm; without one the variables are R2CC_RANK and R2CC_SIZE.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from r2ccl_core.control.rendezvous import parse_root
from r2ccl_core.errors import UsageError

LAUNCHERS = (
    ("R2CC_RANK", "R2CC_SIZE"),
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
"""The variables of each launcher for the rank and for the number of ranks; the first that is set counts."""


class Launched(NamedTuple):
    """A rank, the number of ranks, and where rank 0 listens (None: there is one rank, which needs no such address)."""

    rank: int
    size: int
    root: str | None


def launched(environ: Mapping[str, str]) -> Launched:
    """What `environ` says; raises a one-line `UsageError` if it says nothing, or cannot be read."""
    names = next((names for names in LAUNCHERS if any(environ.get(name) for name in names)), None)
    if names is None:
        known = ", ".join("/".join(pair) for pair in LAUNCHERS)
        raise UsageError(f"no launcher says which rank this is; start it by torchrun or mpirun, or set one of {known}")
    missing = [name for name in names if not environ.get(name)]
    if missing:
        there = next(name for name in names if name not in missing)
        raise UsageError(f"{there} is set and {missing[0]} is not: set both")
    rank, size = (_number(name, environ) for name in names)
    if rank >= size:
        raise UsageError(f"{names[0]}={rank}: ranks go from 0 to {size - 1}, as {names[1]}={size} says")
    return Launched(rank, size, _root(environ, size))


def _number(name: str, environ: Mapping[str, str]) -> int:
    text = environ.get(name, "")
    if re.fullmatch("[0-9]{1,9}", text) is None:
        raise UsageError(f"{name}={text}: give a whole number")
    return int(text)


def _root(environ: Mapping[str, str], size: int) -> str | None:
    if root := environ.get("R2CC_ROOT"):
        return root
    host, port = environ.get("MASTER_ADDR"), environ.get("MASTER_PORT")
    if not (host and port):
        if size == 1:
            return None
        raise UsageError("nothing says where rank 0 listens; set MASTER_ADDR and MASTER_PORT, or R2CC_ROOT=host:port")
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        parse_root(where)
    except UsageError as error:
        raise UsageError(f"MASTER_ADDR={host} MASTER_PORT={port}: give a host and a port from 1 to 65535") from error
    if environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        # torchrun itself listens at that port.
        return f"{where.rpartition(':')[0]}:{int(port) + 1 if int(port) < 65535 else int(port) - 1}"
    return where
