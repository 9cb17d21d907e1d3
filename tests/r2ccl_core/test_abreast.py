"""Lanes that wait for each other never wait in a circle: not in forests of as many trees as run here.

What a rank may do next depends on what was done so far, and more of that never takes anything back. So whatever the
order of events, the ranks get as far as they do here, where each does all it can by turns. A circle would not be the
end, as the executor's patience is limited, but it would cost every such operation milliseconds.
"""

import re
from collections import Counter
from pathlib import Path

import pytest

from r2ccl_core.model.schedule import NOBODY, Schedule
from r2ccl_core.schedules import forest, hierarchical

EXECUTOR = Path(__file__).parents[2] / "r2ccl_core/native/collective/step_machine.cc"


def constant(name: str) -> float:
    [value] = re.findall(rf"{name} = ([\d.]+);", EXECUTOR.read_text())
    return float(value)


def unfinished(schedule: Schedule, abreast: tuple[int, ...], lead: float) -> int:
    """How many lanes, of all ranks, get stuck."""
    sent: Counter[tuple[int, int, int]] = Counter()
    taken: Counter[tuple[int, int, int]] = Counter()
    lanes = [[steps.tolist() for steps in program] for program in schedule.programs]
    done = [[0] * schedule.nlanes for _ in lanes]

    def part_done(rank: int, lane: int) -> float:
        return done[rank][lane] / len(lanes[rank][lane]) if lanes[rank][lane] else 1

    groups = [[other for other, group in enumerate(abreast) if group == own] for own in abreast]

    def waits(rank: int, lane: int) -> bool:
        return part_done(rank, lane) > min(part_done(rank, other) for other in groups[lane]) + lead

    def advance(rank: int, lane: int) -> bool:
        moved = False
        for recv, send, *_ in lanes[rank][lane][done[rank][lane] :]:
            source = (recv, rank, lane)
            if waits(rank, lane) or (recv != NOBODY and taken[source] == sent[source]):
                break
            taken[source] += recv != NOBODY
            sent[rank, send, lane] += send != NOBODY
            done[rank][lane] += 1
            moved = True
        return moved

    places = [(rank, lane) for rank in range(len(lanes)) for lane in range(schedule.nlanes)]
    moved = True
    while moved:
        moved = sum(advance(*place) for place in places) > 0
    return sum(part_done(*place) < 1 for place in places)


@pytest.mark.parametrize("hosts", [3, 4, 6, 8, 16])
def test_no_forest_waits_in_a_circle(hosts: int) -> None:
    lead = constant("kLead")
    for shares in ([1.0] * hosts, [0.5, *[1.0] * (hosts - 1)], [0.67, 0.75, *[1.0] * (hosts - 2)]):
        for fan in (2, 4, 16):
            for chunks in (forest.ABREAST_CHUNKS, 20):
                schedule = forest.all_reduce(shares, trees=6, chunks=chunks, fan=fan)
                assert unfinished(schedule, schedule.abreast, lead) == 0, f"{shares[:3]}, fan {fan}, {chunks} chunks"
                if hosts < 8:
                    ranks = hierarchical.all_reduce(schedule, 2)
                    assert unfinished(ranks, ranks.abreast, lead) == 0, (
                        f"{shares[:3]}, fan {fan}, {chunks} chunks, twice"
                    )


def test_a_few_chunks_would() -> None:
    few = forest.all_reduce([1.0] * 6, trees=6, chunks=1, fan=4)
    assert few.abreast == ()
    assert unfinished(few, (0,) * 6, constant("kLead")) > 0
