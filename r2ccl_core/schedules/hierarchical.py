"""Hierarchical: several GPUs per host, with any AllReduce of hosts in the middle.

GPU j of every host owns shard j of the vector. Shards are summed along a chain inside the host up to their GPU, reduced
between hosts by the given host schedule (all shards at once, sharing the host's NICs), and passed on along the chain
again. This happens chunk by chunk: a chunk goes to the network as soon as the host has summed it.
"""

import numpy as np

from r2ccl_core.errors import UsageError
from r2ccl_core.model.schedule import NOBODY, Lane, Program, Schedule, lane

Row = tuple[int, int, int, int, int]


def all_reduce(hosts: Schedule, gpus: int) -> Schedule:
    """AllReduce over ``hosts.nranks * gpus`` ranks; rank ``h * gpus + j`` is GPU j of host h.

    ``hosts`` must be an AllReduce whose steps name one chunk each. The result has ``gpus`` times its lanes.
    """
    if hosts.collective != "all_reduce" or gpus < 1:
        raise UsageError(f"hierarchical needs an AllReduce of hosts and a GPU or more, not {hosts.collective}")
    programs: list[Program] = []
    for host in range(hosts.nranks):
        for gpu in range(gpus):
            programs.append(
                tuple(
                    _lane(hosts, host, gpu, gpus, shard, index)
                    for shard in range(gpus)
                    for index in range(hosts.nlanes)
                )
            )
    return Schedule(
        f"hierarchical_{hosts.name}",
        "all_reduce",
        hosts.nranks * gpus,
        hosts.nchunks * gpus,
        tuple(programs),
        abreast=tuple(shard * hosts.nlanes + group for shard in range(gpus) for group in hosts.abreast),
    )


def of_ranks(hosts: Schedule, gpus: int) -> Schedule:
    """The AllReduce of ``hosts`` for all their ranks; ``hosts`` itself if each has one rank."""
    return hosts if gpus == 1 else all_reduce(hosts, gpus)


def _lane(hosts: Schedule, host: int, gpu: int, gpus: int, shard: int, index: int) -> Lane:
    """What one GPU does for one shard in one of the host schedule's lanes."""
    outer = hosts.programs[host][index]
    first, last = _touches(outer)
    place = (gpu - shard) % gpus  # 0 is the shard's own GPU; the chain inwards is 1, 2, ..., gpus-1, 0
    before = host * gpus + (gpu - 1) % gpus if place != 1 else NOBODY
    after = host * gpus + (gpu + 1) % gpus
    rows: list[Row] = []
    for at, (recv, send, begin, end, reduce) in enumerate(outer.tolist()):
        span = (shard * hosts.nchunks + begin, shard * hosts.nchunks + end)
        if first[begin] == at and gpus > 1:
            rows.append((before, after if place else NOBODY, *span, int(before != NOBODY)))
        if place == 0:
            rows.append((_at(recv, gpus, shard), _at(send, gpus, shard), *span, reduce))
        if last[begin] == at and gpus > 1:
            back = host * gpus + (gpu - 1) % gpus
            on = after if place < gpus - 1 else NOBODY
            rows.append((back if place else NOBODY, on, *span, 0))
    return lane(rows)


def _touches(steps: Lane) -> tuple[dict[int, int], dict[int, int]]:
    """The first and the last step of every chunk."""
    if len(steps) and (np.asarray(steps["end"]) - np.asarray(steps["begin"]) != 1).any():
        raise UsageError("hierarchical needs a schedule whose steps name one chunk each")
    chunks = steps["begin"].tolist()
    last = {chunk: at for at, chunk in enumerate(chunks)}
    first = {chunk: at for at, chunk in reversed(list(enumerate(chunks)))}
    return first, last


def _at(host: int, gpus: int, gpu: int) -> int:
    return NOBODY if host == NOBODY else host * gpus + gpu
