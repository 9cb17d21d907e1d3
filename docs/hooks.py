"""Generates pages of the site: from the code, and from documents that lie beside the code that they describe.

MkDocs calls `on_files` before a build and `on_page_markdown` for each page.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import typer.main
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from faults.registry import FAULTS
from harness.commands.cli import app
from harness.commands.faults import ACTS_ON
from harness.commands.faults import described as fault_of
from harness.commands.group import WithStatuses
from harness.commands.metrics import described as metric_of
from harness.errors import ExitCode
from harness.systems.catalogue import ENTRIES
from harness.systems.listing import described as system_of
from reports.metrics import METRICS

ROOT = Path(__file__).resolve().parent.parent

BESIDE_CODE = {
    "ARCHITECTURE.md": "design/index.md",
    "CHANGELOG.md": "changes.md",
    "cloudlab/README.md": "guides/cloudlab.md",
    "r2ccl_core/PARAMETERS.md": "reference/variables.md",
    "r2ccl_core/native/wire/simulated/MUTANTS.md": "design/mutants.md",
    "reports/SCHEMA.md": "reference/run-folder.md",
    "tests/data/gpu/README.md": "reference/gpu-figures.md",
}
"""Documents of the repository, and the pages of the site that show them."""

_LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s]*)(#[^)]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the generated pages."""
    for source, page in BESIDE_CODE.items():
        if (ROOT / source).exists():
            files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    for page, make in MADE.items():
        files.append(File.generated(config, page, content=make()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Makes links to files of the repository lead to the pages that show them; without such a page the text stays."""
    shown = page.file.src_uri
    at = next((source for source, site in BESIDE_CODE.items() if site == shown), f"docs/{shown}")

    def change(match: re.Match[str]) -> str:
        words, target, anchor = match[1], match[2], match[3] or ""
        if not target or "://" in target:
            return match[0]
        meant = posixpath.normpath(posixpath.join(posixpath.dirname(at), target))
        if meant == "README.md":
            page_there = "index.md"
        elif meant.startswith("docs/"):
            page_there = meant.removeprefix("docs/")
        else:
            page_there = BESIDE_CODE.get(meant, "")
        if not page_there or files.get_file_from_path(page_there) is None:
            return words
        return f"[{words}]({posixpath.relpath(page_there, posixpath.dirname(shown) or '.')}{anchor})"

    return _LINK.sub(change, markdown)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table in Markdown."""
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def one_line(text: str | None) -> str:
    """Its first paragraph."""
    return re.sub(r"\s+", " ", (text or "").strip().split("\n\n")[0])


def commands() -> str:
    """Every command with its arguments, options and exit statuses."""
    group = typer.main.get_command(app)
    statuses = table(("status", "means"), ([str(int(status)), status.meaning] for status in ExitCode))
    head = [
        "# Commands",
        "",
        "The exit statuses of all commands. Some commands explain theirs further below.",
        "",
        statuses,
        "",
    ]
    return "\n".join([*head, *told(group, "harness")])


def told(command: Any, name: str) -> list[str]:
    """A command's section, or those of a group's commands."""
    context = command.make_context(name, [], resilient_parsing=True)
    if hasattr(command, "list_commands"):
        found = [(sub, command.get_command(context, sub)) for sub in command.list_commands(context)]
        return [line for sub, one in found if not one.hidden for line in told(one, f"{name} {sub}")]
    usage = re.sub(r"\s+", " ", command.get_usage(context)).removeprefix("Usage: ")
    given = [one for one in command.get_params(context) if not getattr(one, "hidden", False)]
    rows = [[f"`{_name(one)}`", one_line(one.help)] for one in given if getattr(one, "help", None)]
    if isinstance(command, WithStatuses):
        ending = [table(("status", "means"), command.statuses()), ""]
    else:
        epilog = (command.epilog or "").replace("\b", "").strip("\n")
        ending = ["```", epilog, "```", ""] if epilog else []
    return [
        f"## {name}",
        "",
        (command.help or "").strip(),
        "",
        f"    {usage}",
        "",
        table(("argument or option", "effect"), rows),
        "",
        *ending,
    ]


def _name(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name.upper())
    return ", ".join([*parameter.opts, *parameter.secondary_opts])


def metrics() -> str:
    """Every metric."""
    told = map(metric_of, METRICS.values())
    rows = [[f"`{m['name']}`", m["unit"] or "-", m["better"], m["of"], m["aggregate"], m["meaning"]] for m in told]
    return "# Metrics\n\n" + table(("metric", "unit", "better", "for", "aggregate", "meaning"), rows) + "\n"


def faults() -> str:
    """Every fault, with its parameters."""
    parts = ["# Faults", ""]
    for fault in map(fault_of, FAULTS.values()):
        needs = f"; needs {', '.join(fault['needs'])}" if fault["needs"] else ""
        parts += [f"## {fault['kind']}", "", f"{fault['meaning']} Acts on {ACTS_ON[fault['scope']]}{needs}.", ""]
        rows = [
            [f"`{one['name']}`", "" if one["default"] is None else str(one["default"]), one["meaning"]]
            for one in fault["parameters"]
        ]
        parts += [table(("parameter", "default", "meaning"), rows), ""] if rows else []
    return "\n".join(parts)


def systems() -> str:
    """Every system."""
    rows = [
        [f"`{s['use']}`", s["meaning"], ", ".join(s["backends"]), s["needs"], str(s["mode"]), END[s["expect_on_fault"]]]
        for s in map(system_of, ENTRIES)
    ]
    head = ("`use`", "what it is", "backends", "needs", "mode", "on a fault")
    return "# Systems\n\n" + table(head, rows) + "\n"


END = {"ok": "continues", "failed": "stops"}

MADE: dict[str, Callable[[], str]] = {
    "reference/commands.md": commands,
    "reference/faults.md": faults,
    "reference/metrics.md": metrics,
    "reference/systems.md": systems,
}
