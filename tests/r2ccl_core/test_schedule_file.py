"""A schedule survives both of its written forms, and damaged ones are refused in one line."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2ccl_core.errors import ScheduleError
from r2ccl_core.model.schedule import Schedule
from r2ccl_core.model.schedule_file import digest, from_bytes, from_text, to_bytes, to_text
from r2ccl_core.schedules import broadcast, forest, hierarchical, optcc, ring


def same(a: Schedule, b: Schedule) -> bool:
    heads = [(s.name, s.collective, s.nranks, s.nchunks, s.root, s.nlanes, s.abreast) for s in (a, b)]
    pairs = zip(a.programs, b.programs, strict=True)
    return heads[0] == heads[1] and all(
        np.array_equal(x, y) for one, other in pairs for x, y in zip(one, other, strict=True)
    )


@settings(max_examples=25)
@given(shares=st.lists(st.sampled_from([1.0, 0.75, 0.5]), min_size=3, max_size=6), kind=st.integers(0, 4))
def test_both_forms_come_back(shares: list[float], kind: int) -> None:
    p = len(shares)
    schedule = [
        lambda: ring.all_reduce(p, slices=2, lanes=2),
        lambda: broadcast.broadcast(p, 1),
        lambda: optcc.all_reduce(shares, segments=4),
        lambda: forest.all_reduce(shares, trees=3, chunks=12),
        lambda: hierarchical.all_reduce(forest.all_reduce(shares, trees=2, chunks=10), 2),
    ][kind]()
    assert same(from_bytes(to_bytes(schedule)), schedule)
    assert same(from_text(to_text(schedule)), schedule)
    assert digest(from_bytes(to_bytes(schedule))) == digest(schedule)


def test_the_text_is_readable() -> None:
    assert to_text(ring.all_reduce(2)).splitlines() == [
        "name=ring collective=all_reduce nranks=2 nchunks=2 root=0",
        "rank 0 lane 0",
        "  send 1 chunks 1-2",
        "  recv 1 reduce send 1 chunks 0-1",
        "  recv 1 chunks 1-2",
        "rank 1 lane 0",
        "  send 0 chunks 0-1",
        "  recv 0 reduce send 0 chunks 1-2",
        "  recv 0 chunks 0-1",
    ]


def test_many_ranks_stay_compact() -> None:
    assert len(to_bytes(ring.all_reduce(256))) < 200_000


def test_damage_is_refused() -> None:
    with pytest.raises(ScheduleError, match="not a schedule"):
        from_bytes(b"something else")
    with pytest.raises(ScheduleError, match="damaged"):
        from_bytes(to_bytes(ring.all_reduce(3))[:-9])
    groups = to_bytes(forest.all_reduce([1.0, 1.0, 1.0], trees=2, chunks=forest.ABREAST_CHUNKS))
    for wrong, words in ((b'"abreast":7', "damaged"), (b'"abreast":"ab"', "not numbers")):
        damaged = groups.replace(b'"abreast":[0,0]', wrong.ljust(15))
        assert len(damaged) == len(groups) and damaged != groups
        with pytest.raises(ScheduleError, match=words):
            from_bytes(damaged)
    text = to_text(from_bytes(groups))
    for wrong in ("abreast=0,,0", "abreast=", "abreast=0,x"):
        with pytest.raises(ScheduleError, match=r"line \d+ of .* cannot be read"):
            from_text(text.replace("abreast=0,0", wrong))
    for wrong in ("abreast=0", "abreast=0,2", "abreast=-1,0"):
        with pytest.raises(ScheduleError, match="group"):
            from_text(text.replace("abreast=0,0", wrong))
    with pytest.raises(ScheduleError, match="line 3"):
        from_text(to_text(ring.all_reduce(3)).replace("send 1 chunks", "send x chunks"))
