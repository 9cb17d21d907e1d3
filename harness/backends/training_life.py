"""What a rank that trains leaves behind for its next life: which step it was in, and two checkpoints in turn.

The files belong to the agent of its host (`harness.backends.training_agent`), have no names, and are gone with it.
Without an agent nothing is kept, and a rank has one life.
"""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

STATE, EVERY, LIVES = "TRAIN_STATE", "TRAIN_CHECKPOINT_EVERY", "TRAIN_LIVES"
"""Of an agent's ranks: the paths of notes and checkpoints, the steps between those, and how many lives a rank has."""
_NOTES_BYTES = 4096


class Begun(NamedTuple):
    """A step, and when it was begun for the first time."""

    kind: Literal["new", "again", "hit"]
    """``again``: it had ended before the failure; ``hit``: the failure came in it."""
    t_ns: int


class Life:
    """One life of a rank: `attempt` counts from 0."""

    def __init__(self, paths: list[Path], every: int, lives: int) -> None:
        self._paths, self._every, self._lives = paths, every, lives
        self._notes: dict[str, Any] = {"attempts": 0, "slots": [None, None], **self._read()}
        self.attempt = int(self._notes["attempts"])
        self.step: int | None = None
        self._write(attempts=self.attempt + 1)
        self._costs: dict[str, float] = {}

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> "Life":
        """As the agent says, if there is one."""
        if STATE not in environ:
            return cls([], 0, 1)
        return cls([Path(path) for path in environ[STATE].split(":")], int(environ[EVERY]), int(environ[LIVES]))

    def will_go_on(self) -> bool:
        """Whether there is another life after this one."""
        return self.attempt + 1 < self._lives

    def resume(self, trainer: Any, beginning: int) -> int:
        """The step to go on with, which is the same on every rank; `trainer` is as after the one before it."""
        if self.attempt == 0:
            return beginning
        joined_ns = time.time_ns()
        kept = [step for step in self._notes["slots"] if step is not None]
        first: int = trainer.agree(max(kept, default=beginning))
        if first in kept:
            _load(trainer, self._paths[1 + self._notes["slots"].index(first)])
        hit = self._notes.get("step", first)
        self._costs = {"reload_ms": (time.time_ns() - joined_ns) / 1e6, "steps_again": float(hit - first)}
        if "failed_ns" in self._notes and "t_ns" in self._notes:
            failed_ns = self._notes["failed_ns"]
            self._costs["failed_after_ms"] = (failed_ns - self._notes["t_ns"]) / 1e6
            self._costs["restart_ms"] = (joined_ns - failed_ns) / 1e6
        self._resumed_ns = time.time_ns()
        return first

    def begin(self, step: int) -> Begun:
        """Notes that a step begins."""
        self.step, last, now_ns = step, self._notes.get("step"), time.time_ns()
        if self.attempt and last is not None and step <= last:
            if step < last:
                return Begun("again", now_ns)
            self._costs["redo_ms"] = (now_ns - self._resumed_ns) / 1e6
            return Begun("hit", self._notes["t_ns"])
        self._notes.pop("failed_ns", None)
        self._write(step=step, t_ns=now_ns)
        return Begun("new", now_ns)

    def costs(self) -> Mapping[str, float]:
        """What it took to come back to the step that was hit."""
        return self._costs

    def ended(self, trainer: Any, step: int) -> None:
        """Makes a checkpoint where one is due. A life that ends while it is written leaves the one before it."""
        if self._every and (step + 1) % self._every == 0:
            slot = (step + 1) // self._every % 2
            slots: list[int | None] = [None if i == slot else old for i, old in enumerate(self._notes["slots"])]
            self._write(slots=slots)
            _save(trainer, self._paths[1 + slot])
            slots[slot] = step + 1
            self._write(slots=slots)

    def failed(self) -> None:
        """Notes when this life ended, the first time in a step."""
        self._write(failed_ns=self._notes.get("failed_ns", time.time_ns()))

    def _read(self) -> dict[str, Any]:
        text = self._paths[0].read_bytes().strip(b"\0 ") if self._paths else b""
        return dict(json.loads(text)) if text else {}

    def _write(self, **changed: Any) -> None:
        self._notes |= changed
        if self._paths:
            with self._paths[0].open("r+b") as file:
                file.write(json.dumps(self._notes).encode().ljust(_NOTES_BYTES))


def _save(trainer: Any, path: Path) -> None:
    import torch

    from harness.backends.parallel import local

    parameters = list(trainer.model.parameters())
    states = [{k: local(v) for k, v in trainer.optimizer.state[p].items()} for p in parameters]
    with path.open("r+b") as file:
        torch.save([[local(p.detach()) for p in parameters], states], file)
        file.truncate()
        os.fsync(file.fileno())


def _load(trainer: Any, path: Path) -> None:
    import torch

    from harness.backends.parallel import local

    with path.open("rb") as file, torch.no_grad():
        weights, states = torch.load(file)
        for parameter, weight, state in zip(trainer.model.parameters(), weights, states, strict=True):
            local(parameter).copy_(weight)
            own = {key: torch.zeros_like(parameter) for key in state if key != "step"}
            for key, moment in own.items():
                local(moment).copy_(state[key])
            trainer.optimizer.state[parameter] = {"step": state["step"], **own}
