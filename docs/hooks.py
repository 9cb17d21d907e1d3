"""Pages of the site that are made, not written: from the code, and from documents that lie beside what they are about.

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
from harness.cli import app
from harness.systems.catalogue import CATALOGUE
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
"""Documents of the repository, and where the site shows them."""

_LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s]*)(#[^)]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are made."""
    for source, page in BESIDE_CODE.items():
        if (ROOT / source).exists():
            files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    for page, make in MADE.items():
        files.append(File.generated(config, page, content=make()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links to files of the repository lead to the pages that show them; where none does, the words stay."""
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
    """Every command with its options."""
    return "\n".join(["# Commands", "", *told(typer.main.get_command(app), "harness")])


def told(command: Any, name: str) -> list[str]:
    """A command's section, or those of a group's commands."""
    context = command.make_context(name, [], resilient_parsing=True)
    if hasattr(command, "list_commands"):
        found = [
            (sub, stands_for.get(sub) or command.get_command(context, sub)) for sub in command.list_commands(context)
        ]
        return [line for sub, one in found if not one.hidden for line in told(one, f"{name} {sub}", {})]
    usage = re.sub(r"\s+", " ", command.get_usage(context)).removeprefix("Usage: ")
    options = [one for one in command.get_params(context) if one.param_type_name == "option" and not one.hidden]
    rows = [[f"`{', '.join([*one.opts, *one.secondary_opts])}`", one_line(one.help)] for one in options]
    return [f"## {name}", "", (command.help or "").strip(), "", f"    {usage}", "", table(("option", "does"), rows), ""]


def metrics() -> str:
    """Every metric."""
    rows = [[f"`{m.name}`", m.unit or "-", m.better or "nearer to 1", m.aggregate, m.meaning] for m in METRICS.values()]
    return "# Metrics\n\n" + table(("metric", "unit", "better", "of a cell", "meaning"), rows) + "\n"


def faults() -> str:
    """Every fault."""
    rows = [[f"`{name}`", one_line(fault.__doc__)] for name, fault in sorted(FAULTS.items())]
    return "# Faults\n\n" + table(("kind", "what happens"), rows) + "\n"


def systems() -> str:
    """Every system."""
    rows = [[f"`{s.name}`", s.what, ", ".join(s.backends), s.needs] for s in CATALOGUE.values()]
    return "# Systems\n\n" + table(("system", "what it is", "backends", "needs"), rows) + "\n"


MADE: dict[str, Callable[[], str]] = {
    "reference/commands.md": commands,
    "reference/faults.md": faults,
    "reference/metrics.md": metrics,
    "reference/systems.md": systems,
}
