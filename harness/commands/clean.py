"""``harness clean``: removes what crashed sweeps left behind, on this machine or on the hosts of an inventory."""

from pathlib import Path

from harness.cluster.clean import clean
from harness.cluster.existing import ssh_host
from harness.cluster.inventory_file import load
from harness.cluster.vms import kernel
from harness.errors import ExitCode, HostError
from harness.hosts.base import Host
from harness.hosts.each import for_each
from harness.hosts.leftovers import remove_leftovers
from harness.terminal import complain


def clean_here(everything: bool) -> ExitCode:
    """Removes left-over local clusters and incomplete images; with `everything` also this user's clusters in use."""
    return _told([f"removed {what}" for what in (*clean(all=everything), *kernel.clean())])


def clean_hosts(inventory: Path, everything: bool) -> ExitCode:
    """Heals left-over faults on every host and switch of an inventory; prints a line or an error for each of them.

    Faults armed by a running sweep stay, unless `everything`.
    """
    content = load(inventory)
    places = [ssh_host(entry) for entry in (*content.hosts, *content.switches)]
    try:
        results = for_each(places, lambda place: _clean_host(place, everything))
    finally:
        for_each(places, lambda place: place.close())
    errors = [result for result in results.values() if isinstance(result, HostError)]
    for error in errors:
        complain(str(error))
    done = [f"{name}: {line}" for name, lines in results.items() if not isinstance(lines, HostError) for line in lines]
    unseen = [f"{name}: not examined" for name, lines in results.items() if isinstance(lines, HostError)]
    _told([*done, *unseen])
    return ExitCode.USAGE if errors else ExitCode.OK


def _clean_host(place: Host, everything: bool) -> list[str]:
    place.connect()
    healed = [f"healed {name}" for name in place.heal_journal(all=everything)]
    if place.is_armed():
        return [*healed, "a running sweep has armed faults here; left alone (--all heals them too)"]
    return healed + [f"removed: {line}" for line in remove_leftovers(place)]


def _told(lines: list[str]) -> ExitCode:
    print("\n".join(lines) or "nothing to remove")
    return ExitCode.OK
