"""A made-up algorithm, as a file of schedules/ would have it: the ring, said to be as fast as anything can be."""

from dataclasses import replace

from r2ccl_core.model.schedule import Schedule
from r2ccl_core.schedules import ring
from r2ccl_core.schedules.algorithm import Algorithm, Parameters, Prediction, Problem, Shares


def all_reduce(shares: Shares, parameters: Parameters) -> Schedule:
    return replace(ring.all_reduce(len(shares), **parameters), name="turned_ring")


def _predict(problem: Problem) -> Prediction:
    return 0.0, {"slices": 3}


ALGORITHM = Algorithm(
    name="turned_ring",
    alias="turned",
    title="Turned Ring",
    idea="made up for a test",
    letter="Z",
    color="#123456",
    predict=_predict,
    build=all_reduce,
    on_gpu=lambda problem: all_reduce(problem.shares, {"slices": 2}),
    slowdown=lambda ranks, lost, pipeline: 7.0,
)
