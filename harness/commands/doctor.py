"""``harness doctor``: whether the loss of a NIC would be survived here, and why."""

import json
import os
import socket
from collections.abc import Sequence
from pathlib import Path

from harness.cluster import inventory_file
from harness.cluster.gather import Surveyed, looking_at, survey_here
from harness.cluster.inventory import Inventory
from harness.cluster.rails import connected, data_nics, group, pairs
from harness.commands import inventory as command
from harness.commands.cluster_check import print_findings
from harness.commands.survival import Answer, Seen, answers, document, findings
from harness.errors import ExitCode
from harness.terminal import say
from r2ccl_core.errors import UsageError

STYLES = {True: ("yes", "bold green"), False: ("no", "bold red"), None: ("unknown", "bold yellow")}


def doctor(hosts: Sequence[str], inventory: Path | None, login: command.LoginOptions, as_json: bool) -> ExitCode:
    """Examines the named hosts, those of an inventory, or this machine; changes nothing there."""
    if hosts and inventory is not None:
        raise UsageError("name hosts, or an inventory, not both")
    if not hosts:
        login.refuse("an inventory says how to log in" if inventory is not None else "nobody logs in to this machine")
    if inventory is not None:
        seen = _look_at(inventory_file.load(inventory))
    else:
        seen = _look_at(command.of_addresses(hosts, login)) if hosts else _look_here()
    found = findings(seen)
    told = answers(seen, found)
    if as_json:
        print(json.dumps(document(seen), indent=1))
    else:
        _print(told)
        print_findings(found, len(seen.surveys) + len(seen.errors))
    return _status(told)


def _status(told: Sequence[Answer]) -> ExitCode:
    if any(answer.survives is False for answer in told):
        return ExitCode.WRONG
    return ExitCode.INCONCLUSIVE if any(answer.survives is None for answer in told) else ExitCode.OK


def _look_here() -> Seen:
    facts, links = survey_here()
    name = socket.gethostname()
    survey = Surveyed(facts, links, "127.0.0.1", 0.0, 0.0)
    return Seen({name: survey}, {name: data_nics(name, links)}, environ=dict(os.environ))


def _look_at(inventory: Inventory) -> Seen:
    with looking_at(inventory) as place:
        surveys = place.survey()
        nics = {name: data_nics(name, survey.links) for name, survey in surveys.items()}
        grouped = group([nic for own in nics.values() for nic in own])
        tried = place.probe(pairs([[nic.endpoint for nic in rail] for rail in grouped]))
        rails = [part for rail in grouped for part in connected(rail, tried)]
        return Seen(surveys, nics, rails, place.errors)


def _print(told: Sequence[Answer]) -> None:
    say("Would the loss of a NIC be survived here?")
    for answer in told:
        word, style = STYLES[answer.survives]
        say(f"  {answer.program}: {word}, because {answer.because}", style=style, indent="    ")
    say("")
