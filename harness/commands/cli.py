"""The command line: parses arguments, calls one function, exits with its status.

Nothing heavy is imported here: each command imports what it needs when it runs, so that ``--help`` is fast.
"""

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from harness.commands.cloudlab_cli import cloudlab_app
from harness.commands.cluster_cli import HostsFile, Key, KnownHosts, Port, Python, Sudo, User, cluster_app
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
from harness.commands.export_cli import export_app
from harness.commands.group import CONTEXT, Group, WithStatuses
from harness.commands.reported import printed, reported

app = typer.Typer(
    cls=Group,
    help="Collectives over NICs that really fail: clusters, faults, sweeps and reports.",
    no_args_is_help=True,
    add_completion=False,  # the command `completion` is explicit about the shell, and changes no file
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=CONTEXT,
)

COMPLETE = "_HARNESS_COMPLETE"
"""The variable through which the scripts of `harness completion` call this program."""

SWEEP_STATUSES = """
0 every trial ended as the experiment expects
1 a result is wrong, a trial ended unexpectedly, or a bound is missed
2 nothing ran: the input is wrong, no cluster can be made, or another sweep uses it
3 inconclusive: trials without a result, unmeasured bounds, or an aborted sweep
70 a bug of this program, with a traceback; results are kept, but not judged
129 the terminal was closed (SIGHUP); like an interrupt
130 interrupted (Ctrl-C): finished trials are kept, and the same command resumes
143 ended by SIGTERM; like an interrupt
"""


def main() -> None:
    """Runs the command line; `harness.commands.start` calls this."""
    if COMPLETE in os.environ:  # a shell asks what may come next
        from typer.completion import completion_init  # type: ignore[attr-defined]  # it has no __all__

        completion_init()
    app(prog_name="harness")


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"harness {version('r2ccl')}")
        raise typer.Exit


@app.callback()
def _harness(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """The options of the program itself."""


@app.command(cls=WithStatuses, epilog=SWEEP_STATUSES)
@reported
def sweep(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="The experiment: a TOML file, or the name of one that comes with this program."
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for run folders.")] = Path("runs"),
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin anew, even if a run can go on.")] = False,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change one key: sweep.repeats=2, system[balance].mode=1; system.mode=1 is that of all systems.",
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="AXIS=VALUE,...", help="Run only some trials, by system, size, fault, repeat or an axis."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print every command on every host.")] = False,
    inventory: Annotated[
        Path | None, typer.Option(metavar="HOSTS.toml", help="Run on these hosts instead of the experiment's cluster.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait if another sweep uses the run or a host.")] = False,
    dask: Annotated[
        str | None,
        typer.Option(metavar="tcp://HOST:PORT", help="Simulate on the workers of this Dask scheduler, not here."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print what happens as JSON, one event per line.")] = False,
) -> int:
    """Run every trial of an experiment, then write rows and a report.

    The same command continues an interrupted sweep.
    """
    from harness.sweep.command import Options, sweep_command

    options = Options(out, fresh, wait, dry_run, json, inventory, dask)
    return sweep_command(file, changes or [], only or [], options)


@app.command()
@reported
def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What is written.")] = Path("experiment.toml"),
    hosts: Annotated[int | None, typer.Option(metavar="N", help="Hosts of the local cluster (3).")] = None,
    nics: Annotated[int | None, typer.Option(metavar="N", help="NICs of each (3).")] = None,
    rate: Annotated[str | None, typer.Option(metavar="RATE", help="Of each NIC (500 Mbit/s).")] = None,
    inventory: Annotated[
        Path | None, typer.Option(metavar="HOSTS.toml", help="Hosts that exist, instead of a local cluster.")
    ] = None,
    collective: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="What runs, once or several times (all_reduce).")
    ] = None,
    size: Annotated[list[str] | None, typer.Option(metavar="SIZE", help="Once or several times (8MiB).")] = None,
    system: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Once or several times (failstop, balance).")
    ] = None,
    fault: Annotated[list[str] | None, typer.Option(metavar="KIND", help="Once or several times (nic_down).")] = None,
    repeats: Annotated[int | None, typer.Option(metavar="N", help="Of each trial (3).")] = None,
    nccl_tests: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A build of nccl-tests, for systems with NCCL.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
) -> int:
    """Write an experiment of your own, with a comment on every key.

    Asks a few questions if run on a terminal without options.
    """
    from harness.commands.init import Answers
    from harness.commands.init import init as write

    given = {
        "hosts": hosts, "nics": nics, "rate": rate, "inventory": inventory, "collectives": collective,
        "sizes": size, "systems": system, "faults": fault, "repeats": repeats, "nccl_tests": nccl_tests,
    }  # fmt: skip
    known: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    return write(file, Answers(**known), ask=not known, force=force)


@app.command()
@reported
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="A run's folder, or several for one report.")],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="DIR", help="Folder of the report; required for several runs.")
    ] = None,
    opened: Annotated[bool, typer.Option("--open", help="Show it in the browser.")] = False,
    serve: Annotated[
        bool, typer.Option("--serve", help="Serve it on 127.0.0.1 and follow a running sweep, until Ctrl-C.")
    ] = False,
    port: Annotated[int, typer.Option(metavar="PORT", min=0, max=65535, help="Port of --serve; 0: any free one.")] = 0,
) -> int:
    """Write rows and the report of one or several runs from their trials."""
    from harness.commands.report import report_command

    return report_command(runs, out, opened, serve, port)


COMPARE_STATUSES = """
0 no regression is shown, and at least one measure has enough repeats
1 at least one measure is worse than its rule tolerates
2 the input is wrong, or the runs have nothing in common
3 unknown: too few repeats (2; of one run 3), NEW lacks trials or measures, or the clusters differ
70 a bug of this program, with a traceback; it says nothing about the runs
74 the conclusion, which is no regression, could not be written
"""


@app.command(cls=WithStatuses, epilog=COMPARE_STATUSES)
@printed
def compare(
    base: Annotated[str, typer.Argument(metavar="BASE", help="A run's folder, or one of its systems: RUN@SYSTEM.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The run or system to be judged, named likewise.")],
    rules: Annotated[
        Path | None, typer.Option(metavar="FILE", help="TOML: metric, direction, tolerance and filters of each rule.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Say whether NEW is worse than BASE, measure by measure, and with what certainty."""
    from harness.commands.compare import compare_command

    return compare_command(base, new, rules, json)


@app.command()
@reported
def reproduce(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A published experiment; by default, all are listed.")
    ] = None,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="DIR", help="Folder of the result.")] = Path("runs"),
    run: Annotated[Path | None, typer.Option(metavar="RUN", help="Read this run instead of sweeping.")] = None,
    changes: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="As for a sweep.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin anew, even if a run can go on.")] = False,
    model_only: Annotated[bool, typer.Option("--model-only", help="Measure nothing.")] = False,
    dask: Annotated[
        str | None,
        typer.Option(metavar="tcp://HOST:PORT", help="Simulate on the workers of this Dask scheduler, not here."),
    ] = None,
) -> int:
    """List published experiments, or compare one with models and with measurements by this program."""
    from harness.commands.reproduce import list_entries, reproduce_command

    if name is None:
        given = {
            "--out": out != Path("runs"), "--run": run, "--set": changes, "--fresh": fresh, "--model-only": model_only,
            "--dask": dask,
        }  # fmt: skip
        return list_entries([option for option, value in given.items() if value])
    return reproduce_command(name, out, run, changes or [], fresh, model_only, dask)


@app.command()
@printed
def faults(
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> int:
    """List every kind of fault with its parameters."""
    from harness.commands.faults import list_faults

    return list_faults(as_json)


@app.command()
@reported
def clean(
    everything: Annotated[bool, typer.Option("--all", help="Also what is in use.")] = False,
    cluster: Annotated[
        Path | None, typer.Option(metavar="HOSTS.toml", help="On the hosts of an inventory instead of here.")
    ] = None,
) -> int:
    """Remove what crashed sweeps left behind, and nothing else.

    By default local clusters of this machine; with --cluster, faults on the hosts and switches of an inventory.
    """
    from harness.commands.clean import clean_here, clean_hosts

    return clean_here(everything) if cluster is None else clean_hosts(cluster, everything)


@app.command()
@printed
def systems(
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> int:
    """List the systems that an experiment can name with `use`: what each is, what runs it, what it needs."""
    from harness.systems.listing import list_systems

    return list_systems(as_json)


@app.command()
@printed
def experiments(
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> int:
    """List the experiments that come with this program, which `harness sweep` takes by name."""
    from harness.experiment.examples import list_experiments

    return list_experiments(as_json)


@app.command()
@printed
def metrics(
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> int:
    """List what is measured in a trial: names, units, which direction is better, and meanings."""
    from harness.commands.metrics import list_metrics

    return list_metrics(as_json)


DOCTOR_STATUSES = """
0 yes, it would be survived
1 no, for the reason that is printed first
2 the input is wrong
3 unknown: a host cannot be reached
70 a bug of this program, with a traceback
"""


@app.command(cls=WithStatuses, epilog=DOCTOR_STATUSES)
@reported
def doctor(
    hosts: Annotated[
        list[str] | None, typer.Argument(metavar="HOST", help="Addresses, or user@address; by default this machine.")
    ] = None,
    inventory: HostsFile = None,
    user: User = None,
    port: Port = None,
    key: Key = None,
    known_hosts: KnownHosts = None,
    sudo: Sudo = False,
    python: Python = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> int:
    """Say whether the loss of a NIC would be survived here, yes or no, and why. Nothing is changed.

    Checks data NICs, the rails between hosts, ARP settings, limits, NCCL and its plugin, RDMA, TCP's congestion
    control.
    """
    from harness.commands.doctor import doctor as look
    from harness.commands.inventory import LoginOptions

    return look(hosts or [], inventory, LoginOptions(user, port, key, known_hosts, sudo, python), as_json)


app.add_typer(cluster_app, name="cluster")
app.add_typer(cloudlab_app, name="cloudlab")
app.add_typer(export_app, name="export")


@app.command()
@printed
def plan(
    hosts: Hosts = 3,
    nics: Nics = 3,
    lost: Lost = None,
    size: Size = "1GiB",
    rate: Rate = "100Gbit/s",
    alpha: Alpha = "20us",
    gpus: Gpus = 1,
    collective: Collective = "all_reduce",
    operations: Annotated[
        int | None,
        typer.Option(
            help="Collectives still to come: a schedule that repays its switch is chosen, however small the gain."
        ),
    ] = None,
    topology_file: TopologyFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Predict every algorithm's time, compare it with the lower bound, and choose an algorithm."""
    from harness.commands.plan import plan_command

    cluster = ClusterOptions(hosts, nics, gpus, rate, lost or (), topology_file)
    return plan_command(cluster, size, alpha, collective, operations, as_json)


@app.command()
@printed
def simulate(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A SimAI workload; or a Chakra trace, NAME of NAME.0.et, NAME.1.et..."),
    ],
    topology_file: TopologyFile = None,
    gpus: Annotated[int, typer.Option(help="GPUs per host; there are as many hosts as the file's ranks need.")] = 8,
    nics: Nics = 8,
    rate: Rate = "400Gbit/s",
    lost: Lost = None,
    strategy: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="How a loss is handled; may be repeated (hot_repair, balance, r2cc, auto)."),
    ] = None,
    alpha: Annotated[str, typer.Option(help="Fixed cost of a message between hosts.")] = "5us",
    pxn: Annotated[
        bool, typer.Option("--pxn/--no-pxn", help="GPUs use each other's NICs; without, only their NUMA domain's.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Time an iteration of a SimAI workload, or a Chakra trace, on hosts with lost NICs."""
    from harness.commands.simulate import simulate_command

    cluster = ClusterOptions(nics=nics, gpus=gpus, rate=rate, lost=lost or (), file=topology_file)
    return simulate_command(file, cluster, strategy or ("hot_repair", "balance", "r2cc", "auto"), alpha, pxn, as_json)


class Shell(StrEnum):
    """The shells that `harness completion` supports."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


COMPLETION_EPILOG = """
\b
bash:  harness completion bash >> ~/.bash_completion
zsh:   harness completion zsh > "${fpath[1]}/_harness"    before compinit runs
fish:  harness completion fish > ~/.config/fish/completions/harness.fish
"""


@app.command(epilog=COMPLETION_EPILOG)
@printed
def completion(
    shell: Annotated[Shell, typer.Argument(help="The shell that reads the script.")],
) -> int:
    """Print a script that lets a shell complete commands, options and files."""
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    print(get_completion_script(prog_name="harness", complete_var=COMPLETE, shell=shell.value))
    return 0
