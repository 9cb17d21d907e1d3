"""Runs the stages on one host: collects facts, does the missing steps, collects facts again."""

import json
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from threading import Event

from harness.cluster.existing import ssh_host
from harness.cluster.inventory import InventoryHost
from harness.errors import HostError
from harness.hosts.facts import read_device
from harness.hosts.ssh import SshHost, open_connection
from harness.setup import ports
from harness.setup.base import (
    SENT,
    Done,
    Once,
    Options,
    Reboot,
    Refused,
    Run,
    Seen,
    Stage,
    State,
    Step,
    Stuck,
    ToDo,
    Unneeded,
    words,
)
from harness.setup.reboot import reboot
from harness.sweep.owner import Owner

BOOTSTRAP = "python3"
"""The host's own Python: the inventory's Python may not exist before the set-up."""

LOOK_S = 300.0


@dataclass(frozen=True)
class Result:
    """The result of one stage on one host. `status` is one of `STATUSES`."""

    host: str
    stage: str
    status: str
    what: str
    remedy: str = ""
    steps: tuple[Step, ...] = ()
    took_s: float = 0.0

    @property
    def bad(self) -> bool:
        """Whether the stage failed."""
        return self.status in ("failed", "blocked")


STATUSES = {
    "begun": "it is not so, and its commands are running; another word follows",
    "done": "it was so already",
    "made": "it was not so, and is now",
    "unneeded": "nothing to be done on such a host",
    "refused": "cannot be done on such a host, and the rest does not need it",
    "to do": "it is not so, and nothing was done about it (--check, --dry-run)",
    "failed": "it is not so, and could not be made so",
    "blocked": "a stage that it needs has failed",
}

Tell = Callable[[Result], None]


class Worker:
    """Runs the stages on one host. It owns the host's session."""

    def __init__(self, entry: InventoryHost, options: Options, stages: Sequence[Stage], *, change: bool) -> None:
        self.name = entry.name
        self.host: SshHost = ssh_host(entry.model_copy(update={"python": BOOTSTRAP}))
        self._entry, self._options, self._stages, self._change = entry, options, stages, change
        self._stopped = Event()

    def run(self, tell: Tell) -> list[Result]:
        """A result for every stage; `tell` is also called when commands begin.

        Raises `HostError` if the host cannot be examined, or is held by a sweep.
        """
        results: list[Result] = []
        try:
            self._open()
            seen = self.look()
            for stage in self._stages:
                if self._stopped.is_set():
                    break
                result, seen = self._stage(stage, seen, results, tell)
                results.append(result)
                tell(result)
        finally:
            self.host.close()
        return results

    def stop(self) -> None:
        """Ends the session, which ends the agent and its commands; no further stage is begun."""
        self._stopped.set()
        self.host.close()

    def _open(self) -> None:
        self.host.connect()
        taken = self.host.claim(Owner.this().values()) if self._change else None
        if taken is not None:
            owner = Owner.read(taken)
            raise HostError(self.name, f"is held by {owner or 'another sweep'}; wait for its end")

    def look(self) -> Seen:
        """The facts by which stages judge."""
        links = self.host.links()
        found, wrong = ports.find(self._entry, links)
        bare = Seen(self._entry, self._options)
        asked = {
            "python": self._entry.python,
            "prefix": bare.prefix,
            "nics": list(found),
            "nccl_tests": self._options.nccl_tests,
            "software": any(stage.software for stage in self._stages),
        }
        facts = self.host.ask(_source("look.py"), json.dumps(asked), timeout_s=LOOK_S)
        known = [
            ports.port(entry, links.by_name[name], facts, lambda nic, rate: read_device(self.host, nic, rate))
            for name, entry in found.items()
        ]
        return Seen(self._entry, self._options, facts, tuple(known), tuple(wrong))

    def _stage(self, stage: Stage, seen: Seen, before: Sequence[Result], tell: Tell) -> tuple[Result, Seen]:
        failed = [result.stage for result in before if result.stage in stage.needs and _stops(result)]
        if failed:
            return Result(self.name, stage.name, "blocked", f"{' and '.join(failed)} failed"), seen
        state = stage.look(seen)
        if not isinstance(state, ToDo) or not self._change:
            return _result(self.name, stage, state), seen
        began_s = time.monotonic()
        tell(Result(self.name, stage.name, "begun", state.what, steps=state.steps))
        try:
            for step in state.steps:
                self._do(step)
            seen = self.look()
            now = stage.look(seen)
        except HostError as error:
            if self._stopped.is_set():  # a stop by the user is no failure of this host
                raise
            return self._failed(stage, state, error.message, time.monotonic() - began_s), seen
        took_s = time.monotonic() - began_s
        if isinstance(now, Done):
            return Result(self.name, stage.name, "made", now.what, steps=state.steps, took_s=took_s), seen
        return self._failed(stage, state, f"still: {now.what}", took_s), seen

    def _failed(self, stage: Stage, state: ToDo, what: str, took_s: float) -> Result:
        remedy = "mend that, then give the same command again"
        return Result(self.name, stage.name, "failed", what, remedy, state.steps, took_s)

    def _do(self, step: Step) -> None:
        """Does one step. Raises `HostError`."""
        if isinstance(step, Run):
            self.host.run(step.argv, timeout_s=step.limit_s)
        elif isinstance(step, Reboot):
            reboot(self.host, step.argv, self._stopped)
            self._open()
        else:
            self._once(step)

    def _once(self, step: Once) -> None:
        sent = "" if step.sends is None else self._send(step.sends)
        try:
            runs = [{"argv": words(run.argv, sent), "limit_s": run.limit_s} for run in step.runs]
            asked = {"marker": step.marker, "value": step.value, "runs": runs}
            argv = [BOOTSTRAP, "-I", "-S", "-c", _source("once.py"), json.dumps(asked)]
            done = self.host.run(argv, timeout_s=step.limit_s, check=False)
            if done.returncode:
                raise HostError(self.name, (done.stderr.strip().splitlines() or ["no message"])[-1])
        finally:
            if sent:
                self._remove(sent)

    def _send(self, path: Path) -> str:
        """Copies a file to the host, under an unpredictable name with the same suffix; returns its path there."""
        ending = "".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix
        # pip identifies a wheel by its whole name, so the random part is in the folder's name.
        folder = f"/tmp/r2ccl-{secrets.token_hex(8)}"
        place = f"{folder}/{path.name}" if ending == ".whl" else f"{folder}/r2ccl{ending}"
        connection = open_connection(self.name, self.host.login)
        try:
            files_there = connection.sftp()
            files_there.mkdir(folder, 0o755)
            with files_there.open(place, "wx") as file:
                file.set_pipelined(True)
                file.write(path.read_bytes())
        except OSError as error:
            raise HostError(self.name, f"no file can be put into /tmp there: {error}") from None
        finally:
            connection.close()
        return place

    def _remove(self, place: str) -> None:
        """Removes the sent file, over a separate connection: after `stop` the session is gone."""
        with suppress(HostError, OSError):
            connection = open_connection(self.name, self.host.login)
            try:
                files_there = connection.sftp()
                files_there.remove(place)
                files_there.rmdir(str(Path(place).parent))
            finally:
                connection.close()


def _stops(result: Result) -> bool:
    return result.status in ("failed", "blocked")


def _result(host: str, stage: Stage, state: State) -> Result:
    match state:
        case Done():
            return Result(host, stage.name, "done", state.what)
        case Unneeded():
            return Result(host, stage.name, "unneeded", state.what)
        case Refused():
            return Result(host, stage.name, "refused", state.what, state.remedy)
        case Stuck():
            return Result(host, stage.name, "failed", state.what, state.remedy)
        case ToDo():
            return Result(host, stage.name, "to do", state.what, steps=state.steps)


def commands(step: Step) -> Iterator[Run]:
    """The commands of a step, for people."""
    match step:
        case Run():
            yield step
        case Once():
            if step.sends is not None:
                yield Run((SENT,), f"the place to which {step.sends.name} is sent")
            yield from step.runs
        case Reboot():
            yield Run(step.argv, f"{step.why}; the set-up waits until it is back")


def _source(name: str) -> str:
    return files("harness.setup").joinpath(name).read_text(encoding="utf-8")
