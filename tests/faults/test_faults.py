"""Every fault against its golden commands: one JSON file per case, target in, commands or refusal out."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from faults.base import RESERVED_NICS, Target
from faults.errors import FaultError
from faults.registry import FAULTS, create

CASES = {path.stem: json.loads(path.read_text()) for path in (Path(__file__).parent / "cases").glob("*.json")}
REFUSED = {name: case for name, case in CASES.items() if "error" in case}
ACCEPTED = {name: case for name, case in CASES.items() if "error" not in case}


def make(case: dict[str, Any]) -> tuple[Any, Target]:
    given = case["target"]
    reserved = frozenset(given.get("reserved", RESERVED_NICS))
    return create(case["kind"], case.get("parameters")), Target(given["host"], given["nic"], reserved)


def words(argvs: Any) -> list[list[str]]:
    return [list(argv) for argv in argvs]


@pytest.mark.parametrize("name", ACCEPTED)
def test_commands_effects_and_plot_are_as_recorded(name: str) -> None:
    case = ACCEPTED[name]
    fault, target = make(case)
    assert words(fault.inject(target)) == case["inject"]
    assert words(fault.heal(target)) == case["heal"]
    assert [dataclasses.asdict(e) for e in fault.effects(target)] == case["effects"]
    assert dataclasses.asdict(fault.plot(target)) == case["plot"]


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_are_one_line_with_a_remedy(name: str) -> None:
    with pytest.raises(FaultError) as refusal:
        make(REFUSED[name])
    assert str(refusal.value) == REFUSED[name]["error"]


def test_every_fault_has_a_golden_case() -> None:
    assert {case["kind"] for case in ACCEPTED.values()} == set(FAULTS)


def test_every_program_a_fault_calls_is_declared() -> None:
    target = Target("host0", "eth0")
    for kind in FAULTS:
        fault = create(kind)
        called = {argv[0] for argv in (*fault.inject(target), *fault.heal(target))}
        assert called == fault.needs
