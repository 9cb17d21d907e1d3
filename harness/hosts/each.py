"""Runs one operation on many hosts at once: a result or an error for every host, not only the first error."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from harness.errors import HostError
from harness.hosts.base import Host

T = TypeVar("T")

MAX_THREADS = 64
"""Hosts handled at the same time; a thread mostly waits for its host."""


def for_each(hosts: Iterable[Host], fn: Callable[[Host], T]) -> dict[str, T | HostError]:
    """`fn(host)` for all hosts in parallel; by name, in the hosts' order, its result or its `HostError`.

    Any other exception is a bug, or a request to stop, and is raised once all hosts have finished.
    """
    hosts = list(hosts)
    if not hosts:
        return {}
    with ThreadPoolExecutor(min(MAX_THREADS, len(hosts)), thread_name_prefix="host") as pool:
        futures = {host.name: pool.submit(_caught, fn, host) for host in hosts}
        return {name: future.result() for name, future in futures.items()}


def all_results(results: Mapping[str, T | HostError]) -> dict[str, T]:
    """The results if there is no error; otherwise raises the only error, or one that counts them all."""
    errors = [r for r in results.values() if isinstance(r, HostError)]
    if len(errors) == 1:
        raise errors[0]
    if errors:
        shown = "; ".join(str(e) for e in errors[:3]) + ("; ..." if len(errors) > 3 else "")
        raise HostError(f"{len(errors)} of {len(results)} hosts", shown)
    return {name: r for name, r in results.items() if not isinstance(r, HostError)}


def _caught(fn: Callable[[Host], T], host: Host) -> T | HostError:
    try:
        return fn(host)
    except HostError as e:
        return e
