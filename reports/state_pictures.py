"""The figures of what the hosts were doing, for the trials of a run with a timeline: read, drawn, saved. An edge."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from reports.embed import save
from reports.figures import state
from reports.load import LoadedRun, watched
from reports.page import Picture
from reports.series import WATCH
from reports.state import state_frame

Pictures = dict[tuple[str, str], Picture]
"""By run and trial."""

MAX_PICTURES = 8
"""Drawing one takes as long as a timeline."""


def state_pictures(
    runs: Sequence[LoadedRun], chosen: Iterable[tuple[str, str]], figures: Path
) -> tuple[Pictures, list[str]]:
    """By run and trial, of the first ones chosen; a line for each table that is there and cannot be read.

    Runs from before there was a watch have none, and that is nothing to tell.
    """
    pictures: Pictures = {}
    problems: list[str] = []
    by_id = {(run.name, trial.trial_id): (run, trial) for run in runs for trial in run.trials}
    found = [(key, *by_id[key]) for key in chosen]
    there = [(key, run, trial) for key, run, trial in found if (run.trial_folder(trial) / WATCH.file).exists()]
    for key, run, trial in there[:MAX_PICTURES]:
        seen = watched(run, trial)
        if isinstance(seen, str):
            problems.append(seen)
            continue
        frame = state_frame(seen, trial)
        if not frame.empty:
            told = f"{trial.trial_id}: {state.caption(frame)}"
            uri = save(state.draw(frame), figures, f"state-{len(pictures) + 1:02d}", told, ("png",))
            pictures[key] = Picture(f"Hosts during {trial.trial_id}", uri, told)
    return pictures, problems
