"""The commands under `harness cluster`: as in `harness.commands.cli`, each imports what it needs when it runs."""

from pathlib import Path
from typing import Annotated

import typer

from harness.commands.group import Group, WithStatuses
from harness.commands.reported import reported
from r2ccl_core.errors import UsageError

CHECK_STATUSES = """
0 no errors; there may be warnings
1 something is wrong on a host, or a host cannot be reached
2 the input is wrong
"""

HostsFile = Annotated[
    Path | None, typer.Option("--inventory", metavar="HOSTS.toml", help="The inventory of the hosts.")
]
Out = Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="File of the inventory.")]
User = Annotated[str | None, typer.Option(metavar="NAME", help="The login name, if SSH does not know it by itself.")]
Port = Annotated[int | None, typer.Option(metavar="PORT", help="The port of the SSH servers, if not 22.")]
Key = Annotated[Path | None, typer.Option(metavar="FILE", help="Your private key, if SSH does not find it by itself.")]
KnownHosts = Annotated[Path | None, typer.Option(metavar="FILE", help="Known host keys, if not in your own file.")]
Sudo = Annotated[bool, typer.Option("--sudo", help="Become root by `sudo -n`.")]
Python = Annotated[str | None, typer.Option(metavar="PATH", help="The Python of the hosts, by default python3.")]
Changes = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change one key.")]

cluster_app = typer.Typer(
    cls=Group,
    help="Clusters without a sweep: hosts found and checked, local clusters brought up.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@cluster_app.command("up")
@reported
def cluster_up(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The experiment whose cluster to make.")],
    changes: Changes = None,
) -> int:
    """Bring up the cluster of an experiment and keep it until Ctrl-C."""
    from harness.commands.cluster import up

    return up(file, changes or [])


@cluster_app.command("prepare")
@reported
def cluster_prepare(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The experiment with the virtual machines.")],
    changes: Changes = None,
) -> int:
    """Fetch the kernel of an experiment's virtual machines and try KVM, as its first sweep would."""
    from harness.commands.cluster import prepare

    return prepare(file, changes or [])


@cluster_app.command("show")
@reported
def cluster_show() -> int:
    """List the clusters that are up. `harness clean --all` takes them down."""
    from harness.commands.cluster import show

    return show()


@cluster_app.command("inventory")
@reported
def cluster_inventory(
    slurm: Annotated[bool, typer.Option("--slurm", help="The hosts of this Slurm allocation.")] = False,
    hostfile: Annotated[
        Path | None, typer.Option("--hostfile", metavar="FILE", help="The hosts of an Open MPI or MPICH host file.")
    ] = None,
    local: Annotated[
        str | None, typer.Option("--local", metavar="TAG", help="The hosts of a local cluster that is up.")
    ] = None,
    out: Out = Path("hosts.toml"),
    look: Annotated[bool, typer.Option("--look/--no-look", help="Log in to find NICs and GPUs.")] = True,
    user: User = None,
    port: Port = None,
    key: Key = None,
    known_hosts: KnownHosts = None,
    sudo: Sudo = False,
    python: Python = None,
) -> int:
    """Write an inventory of hosts that are listed elsewhere, completed by examining them."""
    from harness.commands import inventory as command

    login = command.LoginOptions(user, port, key, known_hosts, sudo, python)
    if [slurm, hostfile is not None, local is not None].count(True) != 1:
        raise UsageError("say where the hosts are listed: exactly one of --slurm, --hostfile FILE, --local TAG")
    if hostfile is not None:
        return command.write(command.of_hostfile(hostfile, login), out, look)
    if local is not None:
        login.refuse("a local cluster says how to log in")
        return command.write(command.of_local(local), out, look)
    return command.write(command.of_slurm(login), out, look)


@cluster_app.command("discover")
@reported
def cluster_discover(
    hosts: Annotated[list[str] | None, typer.Argument(metavar="HOST", help="Addresses, or user@address.")] = None,
    inventory: HostsFile = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="File of the inventory; by default hosts.toml, or the given inventory."
        ),
    ] = None,
    user: User = None,
    port: Port = None,
    key: Key = None,
    known_hosts: KnownHosts = None,
    sudo: Sudo = False,
    python: Python = None,
) -> int:
    """Log in to hosts, find their data NICs, try which reach each other, and write the result as an inventory."""
    from harness.cluster import inventory_file
    from harness.commands import inventory as command

    if bool(hosts) == (inventory is not None):
        raise UsageError("name hosts, or an inventory to complete with --inventory FILE")
    login = command.LoginOptions(user, port, key, known_hosts, sudo, python)
    if inventory is not None:
        login.refuse("an inventory says how to log in")
        return command.write(inventory_file.load(inventory), out or inventory)
    return command.write(command.of_addresses(hosts or [], login), out or Path("hosts.toml"))


@cluster_app.command("check", cls=WithStatuses, epilog=CHECK_STATUSES)
@reported
def cluster_check(
    experiment: Annotated[
        Path | None, typer.Argument(metavar="EXPERIMENT", help="The experiment with the hosts.")
    ] = None,
    inventory: HostsFile = None,
    changes: Changes = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")] = False,
) -> int:
    """Examine all hosts and their networks: what would fail, and the remedy. Nothing is changed."""
    from harness.commands.cluster_check import check

    return check(experiment, changes or [], inventory, as_json)
