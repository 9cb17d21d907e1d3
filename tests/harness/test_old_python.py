"""Files that run on hosts under the oldest Python that is promised: for real under a 3.9, and by their text for 3.8."""

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from faults.link import _AWAIT, _PRESENCE
from faults.nic_shared_congestion import FLOW
from faults.nic_unbind import _LISTED, _WRITE
from harness.cluster.gather import _ASKED
from harness.hosts.session import _LOADER, _PARTS

ROOT = Path(__file__).parents[2]
OLDEST = "3.8"
SHIPPED = (
    *(f"harness/hosts/{name}.py" for name in (*_PARTS, "agent", "watcher", "healer", "interfaces")),
    "harness/cluster/survey.py",
    "harness/cluster/probe.py",
    "harness/setup/look.py",
    "harness/setup/once.py",
    "harness/backends/noop_rank.py",
)
"""All that hosts are sent as files, and ranks that need nothing but Python."""
WORDS = {
    "loader": _LOADER,
    "flow": FLOW,
    "await": _AWAIT,
    "presence": _PRESENCE,
    "listed": _LISTED,
    "write": _WRITE[-1],
}
"""And as arguments of their Python."""


def refused(text: str, folder: Path) -> str:
    """Why `text` needs a newer Python; empty where it does not. Annotations are left out: hosts never evaluate them."""
    file = folder / "looked_at.py"
    # The last line is for vermin, which is not content with a text that any Python could run.
    file.write_text(ast.unparse(_Bare().visit(ast.parse(text))) + '\nprint(f"{1}")\n', encoding="utf-8")
    argv = [str(Path(sys.executable).with_name("vermin")), f"-t={OLDEST}-", "--no-tips", "--eval-annotations", "-vv"]
    done = subprocess.run([*argv, str(file)], capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def _annotates(text: str) -> bool:
    """Whether annotations are there that a Python would evaluate, and that need more than a name."""
    found = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.arg | ast.AnnAssign | ast.FunctionDef)]
    hints = [n.returns if isinstance(n, ast.FunctionDef) else n.annotation for n in found]
    return any(isinstance(hint, ast.Subscript | ast.BinOp) for hint in hints)


class _Bare(ast.NodeTransformer):
    """Takes annotations away."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self.generic_visit(node)
        node.returns = None
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        value = node.value or ast.Constant(None)
        return ast.copy_location(ast.Assign([node.target], value, lineno=node.lineno), node)


@pytest.mark.parametrize("name", SHIPPED)
def test_files_for_hosts_use_nothing_that_the_oldest_python_lacks(name: str, tmp_path: Path) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert not refused(text, tmp_path)
    assert "from __future__ import annotations" in text or not _annotates(text)


@pytest.mark.parametrize("name", WORDS)
def test_scripts_for_hosts_use_nothing_that_the_oldest_python_lacks(name: str, tmp_path: Path) -> None:
    assert not refused(WORDS[name], tmp_path)


@pytest.mark.parametrize("text", ["a = {} | {}\n", "b = 'ab'.removeprefix('a')\n", "C = tuple[str, int]\n"])
def test_what_is_newer_is_found(text: str, tmp_path: Path) -> None:
    assert "require" in refused(text, tmp_path)


def test_a_newer_python_is_needed_where_annotations_are_values(tmp_path: Path, host_python: str) -> None:
    """What the look at the text does not see, and the run of test_agent.py, test_watcher.py and test_healer.py does."""
    done = subprocess.run([host_python, "-c", "from typing import Dict; Dict[str, float | None]"], capture_output=True)
    assert (done.returncode == 0) is (host_python == sys.executable)


def said(python: str, name: str, *arguments: str) -> Any:
    """The JSON that a file prints last under `python`."""
    text = (ROOT / name).read_text(encoding="utf-8")
    done = subprocess.run([python, "-c", text, *arguments], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_survey_and_the_interfaces_say_the_same_under_every_python(host_python: str) -> None:
    survey = said(host_python, "harness/cluster/survey.py", json.dumps(_ASKED))
    assert set(survey) == set(said(sys.executable, "harness/cluster/survey.py", json.dumps(_ASKED)))
    assert survey["gpus"]["driver_loaded"] is Path("/proc/driver/nvidia/version").exists()
    links = [
        {link["name"] for link in said(python, "harness/hosts/interfaces.py")["links"]}
        for python in (host_python, sys.executable)
    ]
    assert "lo" in links[0] and links[0] == links[1]
