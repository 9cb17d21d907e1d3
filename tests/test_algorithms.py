"""An algorithm is one file and one line: everything else derives from its record."""

import json
import pkgutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from r2ccl_core import schedules
from r2ccl_core.gpu.table import SIZES
from r2ccl_core.planning.algorithms import ALGORITHMS
from r2ccl_core.schedules.algorithm import Algorithm

SCRIPT = Path(__file__).parent / "made_up_algorithm.py"


@pytest.fixture(scope="module")
def told() -> tuple[dict[str, Any], dict[str, Any]]:
    """The plan that has it, and what all others say of it."""
    run = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, timeout=270, check=False)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout), json.loads(run.stderr)


def test_the_planner_chooses_it(told: tuple[dict[str, Any], dict[str, Any]]) -> None:
    plan, _ = told
    own = next(one for one in plan["candidates"] if one["name"] == "turned_ring")
    assert own["parameters"] == {"slices": 3} and own["seconds"] == plan["bound_s"]
    assert plan["chosen"] == "turned_ring"


def test_everything_else_knows_it(told: tuple[dict[str, Any], dict[str, Any]]) -> None:
    _, found = told
    assert found["systems"] == ["turned: our core: Balance and Turned Ring after a loss"]
    assert found["trial"] == ["ok", "from iteration -1: ring", "from iteration 3: turned_ring"]
    assert found["table"] == ["turned_ring"] * len(SIZES) and found["table_option"]
    assert found["job"] == ["turned", pytest.approx(1.125, rel=1e-3)]
    assert found["model"] == 7.0
    assert found["figure"] == ["Z  turned_ring", pytest.approx([0x12 / 255, 0x34 / 255, 0x56 / 255])]
    assert found["palette"] == "#123456"
    assert found["caption"]
    assert found["reproduced"] == [True, "Turned Ring"]
    assert found["document"] == ["| `turned` | turned_ring | Turned Ring: made up for a test | after a loss | yes |"]


def test_every_record_is_in_the_list_and_like_no_other() -> None:
    modules = [import_module(f"{schedules.__name__}.{one.name}") for one in pkgutil.iter_modules(schedules.__path__)]
    records = [value for module in modules for value in vars(module).values() if isinstance(value, Algorithm)]
    assert {one.name for one in records} == set(ALGORITHMS)
    for field in ("name", "title", "letter", "color"):
        values = [getattr(one, field) for one in ALGORITHMS.values()]
        assert len(set(values)) == len(values), field
    aliases = [one.alias for one in ALGORITHMS.values() if one.alias]
    assert len(set(aliases)) == len(aliases)
