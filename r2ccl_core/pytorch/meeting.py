"""The rendezvous of a PyTorch group: rank 0 finds a free port and publishes it in the group's store."""

from datetime import timedelta
from typing import Any

from r2ccl_core.control.rendezvous import address_towards, free_root
from r2ccl_core.host.nics import find_nics

_KEY = "r2ccl/root/{}"


def meeting_place(store: Any, rank: int, size: int, timeout: timedelta) -> str | None:
    """``host:port`` of rank 0; None for a group of one rank, which meets nobody."""
    if size == 1:
        return None
    # A store outlives groups (torchrun's does): a later one must not read where an earlier one of its name has met.
    key = _KEY.format(store.add(f"r2ccl/meetings/{rank}", 1))
    if rank == 0:
        store.set(key, free_root(_own_address(store)))
    store.wait([key], timeout)
    return str(store.get(key).decode())


def _own_address(store: Any) -> str:
    """This rank's address on the network over which the store's server is reached; without such a network (a store in a
    file), the address of its first NIC."""
    while not hasattr(store, "host") and hasattr(store, "underlying_store"):
        store = store.underlying_store
    if not hasattr(store, "host"):
        return find_nics()[0][1]
    return address_towards(store.host, store.port)
