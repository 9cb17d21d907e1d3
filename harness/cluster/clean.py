"""Removes the remains of local clusters: one cluster by its tag, or every left-over of this user.

A left-over is a cluster whose owner is gone, or an object that is named like ours, has no record, and holds no process.
Objects without a tag of ours are never touched. In a namespace of ours every process is ended.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from harness.cluster import namespaces, netlink, processes, rights, state
from harness.cluster.layout import NAMESPACE_PREFIX, UPLINK_PREFIX, tag_of
from harness.errors import ClusterError

OWNER_LEAVE_S = 15.0
"""How long a living owner may take to heal and exit before it is killed."""


def clean(*, all: bool = False) -> list[str]:  # noqa: A002  (as the command-line option is called)
    """Removes every left-over, with `all` the living clusters too; returns one line for each, with its description.

    Needs no rights of its own: an ordinary user's cluster disappears with its last process. Raises `ClusterError` at
    the end if something could not be removed.
    """
    done, failed = [], []
    for tag in _all_tags():
        record = None
        try:
            record = state.read(tag)
            if record is not None and record.is_living():
                if not all or record.owner.pid == os.getpid():
                    continue
                _end_owner(record.owner)
            # Under the lock: without a record, it may be a cluster that another process is making right now.
            with state.lock():
                if state.read(tag) is None and not all and _in_use(tag):
                    continue
                remove(tag)
        except (ClusterError, OSError) as e:
            failed.append(f"{tag}: {e}")
        else:
            done.append(f"{record.name} ({tag}, {record.created})" if record else f"cluster {tag}")
    if failed:
        raise ClusterError(f"not removed: {'; '.join(failed)}")
    return done


def living() -> list[str]:
    """The tags of this user's clusters that are in use."""
    return [record.tag for record in _records() if record.is_living()]


def left_over() -> list[str]:
    """The tags of this user's clusters whose owner is gone."""
    return [record.tag for record in _records() if not record.is_living()]


def _records() -> Iterator[state.Record]:
    """The clusters' records, without those that only another version can read."""
    for tag in state.tags():
        with suppress(ClusterError):
            record = state.read(tag)
            if record is not None:
                yield record


def remove(tag: str) -> None:
    """Removes everything that carries this tag: processes, uplink, namespaces, files. Harmless twice."""
    spaces = _namespaces_of(tag)
    try:
        processes.kill(_processes_of(tag))
    except TimeoutError as e:
        raise ClusterError(f"cluster {tag}: {e}; kill them, then clean again") from None
    if rights.have():
        netlink.remove_uplink(f"{UPLINK_PREFIX}{tag}")
        for name in spaces:
            namespaces.remove(name)
    state.forget(tag)


def _namespaces_of(tag: str) -> list[str]:
    return [name for name in namespaces.names() if name.startswith(f"{NAMESPACE_PREFIX}{tag}-")]


def _processes_of(tag: str) -> list[processes.ProcessId]:
    """The processes in its namespaces, and those that its record names; never a process outside of them."""
    inodes = set()
    for name in _namespaces_of(tag):
        with suppress(OSError):
            inodes.add(namespaces.path_of(name).stat().st_ino)
    found = processes.in_namespaces("net", inodes)
    record = state.read(tag)
    if record is None:
        return found
    own = Path("/proc/self/ns/user").stat().st_ino
    if record.user_namespace != own:  # an ordinary user's: every process in it came with the cluster's command
        found += processes.in_namespaces("user", {record.user_namespace})
    return [*found, *(p for p in record.processes if processes.alive(p))]


def _in_use(tag: str) -> bool:
    """True for namespaces in which something runs; without a record here, they may be another user's."""
    return bool(_processes_of(tag))


def _all_tags() -> list[str]:
    """The tags of records and, if we could remove them, of namespaces and uplinks."""
    names = namespaces.names() + netlink.uplinks() if rights.have() else []
    return sorted({tag for tag in map(tag_of, names) if tag} | set(state.tags()))


def _end_owner(owner: processes.ProcessId) -> None:
    """Asks the owner to exit, so that it heals and keeps its rows; kills it if it does not."""
    try:
        processes.kill([owner], sig=signal.SIGTERM, wait_s=OWNER_LEAVE_S)
    except TimeoutError:
        processes.kill([owner])
