"""The figures of what the hosts were doing, for the trials of a run with a timeline: read, drawn, saved. An edge."""

from collections.abc import Iterable

from reports.embed import save
from reports.figures import state
from reports.load import LoadedRun, watched
from reports.page import Picture
from reports.series import WATCH
from reports.state import state_frame

MAX_PICTURES = 8
"""Drawing one takes as long as a timeline."""


def state_pictures(loaded: LoadedRun, trial_ids: Iterable[str]) -> tuple[dict[str, Picture], list[str]]:
    """By trial, of the first ones named; a line for each table that is there and cannot be read.

    Runs from before there was a watch have none, and that is nothing to tell.
    """
    pictures: dict[str, Picture] = {}
    problems: list[str] = []
    by_id = {trial.trial_id: trial for trial in loaded.trials}
    there = [by_id[name] for name in trial_ids if (loaded.trial_folder(by_id[name]) / WATCH.file).exists()]
    for trial in there[:MAX_PICTURES]:
        seen = watched(loaded, trial)
        if isinstance(seen, str):
            problems.append(seen)
            continue
        frame = state_frame(seen, trial)
        if not frame.empty:
            told = f"{trial.trial_id}: {state.caption(frame)}"
            uri = save(state.draw(frame), loaded.folder / "figures", f"state-{len(pictures) + 1:02d}", told, ("png",))
            pictures[trial.trial_id] = Picture(f"Hosts during {trial.trial_id}", uri, told)
    return pictures, problems
