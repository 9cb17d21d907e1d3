"""The command line: reads arguments, calls one function, ends with its exit status.

Nothing heavy is imported here: each command imports what it needs when it runs, so that ``--help`` is quick.
"""

from pathlib import Path
from typing import Annotated

import typer

from harness.cloudlab_cli import cloudlab_app
from harness.cluster_cli import cluster_app
from harness.errors import ExitCode
from harness.reported import reported

app = typer.Typer(
    help="Collectives over NICs that really fail: clusters, faults, sweeps and reports.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

SWEEP_EPILOG = """
\b
Exit status:
  0    every trial ended as the experiment expects
  1    a result is wrong, a trial ended otherwise than expected, or a bound is missed
  2    nothing ran: the input is wrong, no cluster can be made, or another sweep has it
  3    inconclusive: trials without a verdict, bounds unmeasured, or the sweep broke off
  70   a bug of this program, with a traceback; results are kept, and nothing is said of them
  129  the terminal went away (SIGHUP); as after an interrupt
  130  interrupted (Ctrl-C): finished trials are kept, and the same command resumes
  143  ended by SIGTERM; as after an interrupt
"""


def main() -> None:
    """All commands; `harness.start` begins here."""
    app(prog_name="harness")


@app.command(epilog=SWEEP_EPILOG)
@reported
def sweep(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The experiment, a TOML file.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where run folders are made.")] = Path("runs"),
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin anew, even if a run can go on.")] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change one key, for example sweep.repeats=2."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="AXIS=VALUE,...", help="Keep some trials, by system, size, fault, repeat or an axis."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print every command on every host.")] = False,
    inventory: Annotated[
        Path | None, typer.Option(metavar="HOSTS.toml", help="Run on these hosts instead of the experiment's cluster.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait where another sweep has the run or a host.")] = False,
    dask: Annotated[
        str | None,
        typer.Option(metavar="tcp://HOST:PORT", help="Simulate on the workers of this Dask scheduler, not here."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Tell what happens as one JSON event a line.")] = False,
) -> int:
    """Run every trial of an experiment, then write rows and a report.

    An interrupted sweep goes on where it was when the same command is given again.
    """
    from harness.sweep.command import Options, sweep_command

    options = Options(out, fresh, wait, dry_run, json, inventory, dask)
    return sweep_command(file, settings or [], only or [], options)


@app.command()
@reported
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="A run's folder, or several for one report.")],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="DIR", help="Where the report goes; several runs need one.")
    ] = None,
    opened: Annotated[bool, typer.Option("--open", help="Show it in the browser.")] = False,
    serve: Annotated[
        bool, typer.Option("--serve", help="Serve it on 127.0.0.1 and follow a running sweep, until Ctrl-C.")
    ] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of --serve; 0: any free one.")] = 0,
) -> int:
    """Write rows and report of one run or several, from their trials."""
    from harness.report_command import report_command

    return report_command(runs, out, opened, serve, port)


COMPARE_EPILOG = """
\b
Exit status:
  0    no regression is shown
  1    at least one measure is worse than its rule tolerates
  2    the input is wrong, or the runs have nothing in common
  3    nobody can tell: an interval lies on both sides of what its rule tolerates
  70   a bug of this program, with a traceback; it says nothing of the runs
"""


@app.command(epilog=COMPARE_EPILOG)
@reported
def compare(
    base: Annotated[str, typer.Argument(metavar="BASE", help="A run's folder, or one of its systems: RUN@SYSTEM.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The same of what is to be judged.")],
    rules: Annotated[
        Path | None, typer.Option(metavar="FILE", help="TOML: metric, direction, tolerance and filters of each rule.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Say whether NEW is worse than BASE, measure by measure, and how sure that is."""
    from harness.compare_command import compare_command

    return compare_command(base, new, rules, json)


@app.command()
@reported
def reproduce(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A published experiment; without: all.")] = None,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="DIR", help="Where the result is made.")] = Path("runs"),
    run: Annotated[Path | None, typer.Option(metavar="RUN", help="Read this run instead of sweeping.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="As of a sweep.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin anew, even if a run can go on.")] = False,
    model_only: Annotated[bool, typer.Option("--model-only", help="Measure nothing.")] = False,
    dask: Annotated[
        str | None,
        typer.Option(metavar="tcp://HOST:PORT", help="Simulate on the workers of this Dask scheduler, not here."),
    ] = None,
) -> int:
    """List published experiments, or put one of them beside models and measurements of this program."""
    from harness.reproduce_command import list_entries, reproduce_command

    if name is None:
        return list_entries()
    return reproduce_command(name, out, run, settings or [], fresh, model_only, dask)


@app.command()
@reported
def faults(
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> int:
    """List every kind of fault with its parameters."""
    from harness.faults_command import list_faults

    return list_faults(as_json)


@app.command()
@reported
def clean(
    everything: Annotated[bool, typer.Option("--all", help="What is in use, too.")] = False,
    cluster: Annotated[
        Path | None, typer.Option(metavar="HOSTS.toml", help="On the hosts of an inventory instead of here.")
    ] = None,
) -> int:
    """Remove what crashed sweeps left behind, and nothing else.

    Local clusters of this machine; with --cluster, faults on the hosts and switches of an inventory.
    """
    from harness.clean_command import clean_here, clean_hosts

    return clean_here(everything) if cluster is None else clean_hosts(cluster, everything)


@app.command()
@reported
def systems() -> int:
    """List the systems that an experiment can name with `use`: what each is, what runs it, what it needs."""
    from harness.systems.listing import lines

    print("\n".join(lines()))
    return ExitCode.OK


app.add_typer(cluster_app, name="cluster")
app.add_typer(cloudlab_app, name="cloudlab")


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    help="Predict every algorithm's time beside the lower bound, and choose one.",
)
def plan(context: typer.Context) -> None:
    """Hands its arguments on: the options are told where their meaning is, which takes long to import."""
    from harness.plan import plan_command

    planner = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    planner.command(context_settings={"help_option_names": ["-h", "--help"]})(reported(plan_command))
    planner(context.args, prog_name="harness plan")
