"""`harness cloudlab setup`: reports actions as they happen, and at the end what needed no action."""

import json
import shlex
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from harness.cluster import inventory_file
from harness.cluster.inventory import Inventory
from harness.errors import ExitCode, HostError, MistakeError
from harness.hosts.each import MAX_THREADS
from harness.interrupt import stoppable, told_of
from harness.setup.base import Options, Stage
from harness.setup.core_source import core_file
from harness.setup.runner import STATUSES, Result, Tell, Worker, commands
from harness.setup.stages.catalogue import STAGES, chosen
from harness.terminal import complain

_AT_ONCE = frozenset({"begun", "made", "to do", "failed", "blocked"})
"""Statuses that are reported at once; the others are reported at the end, once for all hosts with the same result."""

_STYLES = {"made": "green", "refused": "yellow", "to do": "cyan", "failed": "bold red", "blocked": "red"}
ALL = "all hosts"
_STATUS_WIDTH = max(map(len, STATUSES))


@dataclass(frozen=True)
class Asked:
    """The options of the command line."""

    inventory: Path
    check: bool = False
    dry_run: bool = False
    json: bool = False
    only: Sequence[str] = ()
    skip: Sequence[str] = ()
    core: Path | None = None
    site_packages: str | None = None
    mtu: int | None = None
    nccl_tests: str | None = None


def setup(asked: Asked) -> ExitCode:
    """Sets up the hosts of an inventory; status 1 if a host is not as it should be at the end."""
    if asked.only and not _split(asked.only):  # an empty variable in a script: never all stages
        raise MistakeError("--only", "", None, "names no stage; leave it out for all of them")
    stages = chosen(_split(asked.only), _split(asked.skip))
    if asked.check and asked.dry_run:
        raise MistakeError("--check", "--dry-run", None, "give only one of them: both change nothing")
    if asked.site_packages is not None and not asked.site_packages.startswith("/"):
        raise MistakeError("--site-packages", asked.site_packages, None, "must be an absolute path on the hosts")
    inventory = inventory_file.load(asked.inventory)
    with told_of(lambda: "the same command goes on"), core_file(asked.core) as core, stoppable():
        options = Options(core, asked.site_packages, asked.mtu, asked.nccl_tests)
        teller = Teller(asked, inventory, stages)
        workers = {host.name: Worker(host, options, stages, change=teller.changes) for host in inventory.hosts}
        found = go_through(workers, teller.tell)
    return teller.end(found)


def go_through(workers: Mapping[str, Worker], tell: Tell) -> dict[str, list[Result] | HostError]:
    """Sets up all hosts at once. A request to stop ends every session, and the agents then end what they run."""

    def run(worker: Worker) -> list[Result] | HostError:
        try:
            return worker.run(tell)
        except HostError as error:
            return error

    with ThreadPoolExecutor(min(MAX_THREADS, len(workers)), thread_name_prefix="setup") as pool:
        futures = {name: pool.submit(run, worker) for name, worker in workers.items()}
        try:
            return {name: future.result() for name, future in futures.items()}
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in workers.values():
                worker.stop()
            raise


class Teller:
    """Prints the progress: lines for people, or a JSON event for every stage of every host; then the total."""

    def __init__(self, asked: Asked, inventory: Inventory, stages: Sequence[Stage]) -> None:
        self.changes = not (asked.check or asked.dry_run)
        self._asked, self._stages = asked, {stage.name: stage for stage in stages}
        self._hosts = len(inventory.hosts)
        self._host_width = max(len(ALL), *(len(host.name) for host in inventory.hosts))
        self._stage_width = max(len(stage.name) for stage in stages)
        self._console = Console(highlight=False, soft_wrap=True)
        self._printing = threading.Lock()

    def tell(self, result: Result) -> None:
        """Reports the end of one stage of one host. Thread-safe."""
        with self._printing:
            if self._asked.json:
                print(json.dumps(event(result)), flush=True)
            elif result.status in _AT_ONCE:
                self._print(result.host, result)

    def end(self, found: Mapping[str, list[Result] | HostError]) -> ExitCode:
        """Reports the total."""
        errors = [error for error in found.values() if isinstance(error, HostError)]
        results = [result for told in found.values() if not isinstance(told, HostError) for result in told]
        counts = Counter(result.status for result in results)
        due = self._asked.check and counts["to do"]
        status = ExitCode.WRONG if errors or due or any(result.bad for result in results) else ExitCode.OK
        if self._asked.json:
            unreached = [{"host": error.host, "error": error.message} for error in errors]
            print(json.dumps({"event": "end", "counts": counts, "unreached": unreached, "status": int(status)}))
            return status
        for result, names in _alike([result for result in results if result.status not in _AT_ONCE]):
            self._print(ALL if len(names) == self._hosts else ", ".join(names), result)
        for error in errors:
            complain(str(error))
        shown = ", ".join(f"{counts[name]} {name}" for name in STATUSES if counts[name])
        unreached_text = f", {len(errors)} host{'s' * (len(errors) > 1)} not set up" if errors else ""
        print(f"{len(found)} hosts: {shown or 'nothing examined'}{unreached_text}")
        lost = [name for name in ("addresses", "mtu", "arp", "rates", "acs") if name in self._stages]
        if self.changes and counts["made"] and lost:
            print(f"A reboot undoes {', '.join(lost)}; the same command makes them again.")
        return status

    def _print(self, names: str, result: Result) -> None:
        style = _STYLES.get(result.status, "")
        place = f"{names:{self._host_width}}  {result.stage:{self._stage_width}}"
        took = f" ({result.took_s:.1f} s)" if result.took_s >= 1 else ""
        remedy = f"; {result.remedy}" if result.remedy else ""
        self._console.print(f"{place}  {result.status:{_STATUS_WIDTH}}", end="  ", style=style, markup=False)
        self._console.print(f"{result.what}{took}{remedy}", markup=False)
        if self._asked.dry_run or result.status == "failed":
            for step in result.steps:
                for run in commands(step):
                    self._console.print(f"    {shlex.join(run.argv)}\n        # {run.why}", markup=False)


def _alike(results: Sequence[Result]) -> list[tuple[Result, list[str]]]:
    """Each distinct result once, in the order of stages, with all its hosts."""
    hosts: dict[tuple[str, str, str], list[Result]] = {}
    for result in results:
        hosts.setdefault((result.stage, result.status, result.what), []).append(result)
    order = [stage.name for stage in STAGES]
    found = sorted(hosts.values(), key=lambda same: order.index(same[0].stage))
    return [(same[0], [result.host for result in same]) for same in found]


def event(result: Result) -> dict[str, object]:
    """One stage of one host as values for programs."""
    runs = [run for step in result.steps for run in commands(step)]
    return {
        "event": "stage",
        "host": result.host,
        "stage": result.stage,
        "status": result.status,
        "what": result.what,
        "remedy": result.remedy or None,
        "commands": [{"argv": run.argv, "why": run.why} for run in runs],
        "took_s": round(result.took_s, 3),
    }


def _split(names: Sequence[str]) -> list[str]:
    return [name.strip() for text in names for name in text.split(",") if name.strip()]
