"""The commands under `harness export`: as in `harness.commands.cli`, each imports what it needs when it runs."""

from pathlib import Path
from typing import Annotated

import typer

from harness.commands.cluster_options import (
    Alpha,
    ClusterOptions,
    Collective,
    Gpus,
    Hosts,
    Lost,
    Nics,
    Rate,
    Size,
    TopologyFile,
)
from harness.commands.reported import reported

export_app = typer.Typer(
    help="Schedules and clusters as files of other simulators.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@export_app.command("chakra")
@reported
def chakra(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the traces go; it is made.")],
    hosts: Hosts = 3,
    nics: Nics = 3,
    lost: Lost = None,
    rate: Rate = "100Gbit/s",
    gpus: Gpus = 1,
    topology_file: TopologyFile = None,
    size: Size = "1GiB",
    collective: Collective = "all_reduce",
    algorithm: Annotated[
        str | None, typer.Option(metavar="NAME", help="One that `harness plan` lists; by default what it chooses.")
    ] = None,
    alpha: Alpha = "20us",
) -> int:
    """Write a schedule as Chakra traces, NAME.RANK.et for every rank, as ASTRA-sim runs them.

    A trace holds what is sent, when and to whom; a topology says which links are lost (`harness export simai`).
    """
    from harness.commands.export import export_chakra

    cluster = ClusterOptions(hosts, nics, gpus, rate, lost or (), topology_file)
    return export_chakra(folder, cluster, size, alpha, collective, algorithm)


@export_app.command("simai")
@reported
def simai(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What is written.")],
    hosts: Hosts = 3,
    gpus: Annotated[int, typer.Option(help="GPUs per host, each with a NIC.")] = 8,
    lost: Lost = None,
    rate: Rate = "400Gbit/s",
    topology_file: TopologyFile = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
) -> int:
    """Write a cluster as a topology for SimAI; a lost NIC is a link that is not there.

    With --topology, write that file's cluster again, without the NICs of --lost.
    """
    from harness.commands.export import export_simai

    return export_simai(file, ClusterOptions(hosts, gpus, gpus, rate, lost or (), topology_file), force=force)
