"""The commands under `harness cloudlab`: as in `harness.commands.cli`, each imports what it needs when it runs."""

from pathlib import Path
from typing import Annotated

import typer

from harness.commands.group import Group, WithStatuses
from harness.commands.reported import reported

SETUP_STATUSES = """
0 every host is as it should be; features that its kind of host lacks are refused by name
1 something has failed, a host cannot be reached, or (--check) something remains to be done
2 the input is wrong
"""

cloudlab_app = typer.Typer(
    cls=Group,
    help="Hosts from CloudLab: from its manifest to hosts that sweeps can use.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@cloudlab_app.command("inventory")
@reported
def cloudlab_inventory(
    manifest: Annotated[
        Path, typer.Argument(metavar="MANIFEST.xml", help="From `geni-get manifest` or the portal's Manifest tab.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Where the inventory goes.")] = Path(
        "hosts.toml"
    ),
    user: Annotated[
        str | None, typer.Option(metavar="NAME", help="Your login; required if the manifest lists several.")
    ] = None,
    key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Your private key, if SSH does not find it by itself.")
    ] = None,
    known_hosts: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Known host keys, if not in your own file.")
    ] = None,
    accept_host_keys: Annotated[
        bool, typer.Option("--accept-host-keys", help="Trust the keys that the hosts present now, and no others later.")
    ] = False,
    rate: Annotated[
        str | None, typer.Option(metavar="RATE", help="The most that each NIC may send, such as '10 Gbit/s'.")
    ] = None,
    python: Annotated[
        str | None, typer.Option(metavar="PATH", help="The Python for the ranks, by default /opt/r2ccl/bin/python.")
    ] = None,
    sudo: Annotated[
        bool | None, typer.Option("--sudo/--no-sudo", help="Become root by `sudo -n`; by default unless root logs in.")
    ] = None,
) -> int:
    """Write an inventory: hosts, SSH addresses, and NICs by rail, one rail for each LAN."""
    from harness.commands.cloudlab import PYTHON, Wanted, write_inventory

    wanted = Wanted(user, key, known_hosts, accept_host_keys, sudo, python or PYTHON, rate)
    return write_inventory(manifest, out, wanted)


@cloudlab_app.command("manifest")
@reported
def cloudlab_manifest(
    local: Annotated[str, typer.Option("--local", metavar="TAG", help="The local cluster, by its tag or its name.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Where the manifest goes.")] = Path(
        "manifest.xml"
    ),
) -> int:
    """Write the manifest that CloudLab would give for a running local cluster, to rehearse the next steps."""
    from harness.commands.cloudlab import write_manifest

    return write_manifest(local, out)


@cloudlab_app.command("setup", cls=WithStatuses, epilog=SETUP_STATUSES)
@reported
def cloudlab_setup(
    inventory: Annotated[Path, typer.Argument(metavar="HOSTS.toml", help="The inventory.")],
    check: Annotated[bool, typer.Option("--check", help="Change nothing; print what would be done.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing; print every command, and why.")] = False,
    only: Annotated[list[str] | None, typer.Option(metavar="STAGE,...", help="Only these stages.")] = None,
    skip: Annotated[list[str] | None, typer.Option(metavar="STAGE,...", help="All stages except these.")] = None,
    mtu: Annotated[int | None, typer.Option(min=576, max=65535, help="MTU of every data NIC, in bytes.")] = None,
    nccl_tests: Annotated[
        str | None, typer.Option(metavar="WHERE", help="A folder on the hosts that contains them, or a package.")
    ] = None,
    core: Annotated[
        Path | None, typer.Option(metavar="FILE.whl", help="This package as a wheel, instead of this checkout.")
    ] = None,
    site_packages: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="A folder of Python packages on the hosts, instead of the Internet."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print what happens as JSON, one event per line.")] = False,
) -> int:
    """Set up the hosts of an inventory over SSH; the same command continues, or finds nothing left to do.

    Stages: packages, driver, reboot, core, nccl_tests, addresses, mtu, arp, rates, acs, topology.
    """
    from harness.commands.setup import Asked, setup

    asked = Asked(inventory, check, dry_run, json, only or [], skip or [], core, site_packages, mtu, nccl_tests)
    return setup(asked)
