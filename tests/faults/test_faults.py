"""Every fault against its golden cases: one JSON file each, a target with all facts in, what the fault makes of it out.

``python tests/faults/test_faults.py --write`` writes the expected half of every case anew, to be read as a diff.
"""

import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from itertools import combinations
from math import dist
from operator import mul
from pathlib import Path
from typing import Any

import pytest

from faults import filter as drop
from faults import link, nic_shared_congestion, nic_unbind, qmp
from faults.base import RESERVED_NICS, Device, Order, OvsPort, Probe, Slot, Target, severs
from faults.errors import FaultError
from faults.registry import FAULTS, create
from r2ccl_core.model.token_bucket import TokenBucket

FOLDER = Path(__file__).parent / "cases"
CASES = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
PROGRAMS = {
    nic_shared_congestion.FLOW: "FLOW",
    nic_unbind._WRITE[4]: "WRITE",
    link._AWAIT: "AWAIT",
    link._PRESENCE: "PRESENCE",
    qmp._ASK: "QMP",
    nic_unbind._LISTED: "LISTED",
    drop._UNHOOK: "UNHOOK",
}
"""Programs inside commands, by the names under which cases show them; others prove what they do."""
SIGHTS = {
    "usual": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.1523, 1.0526, -0.2049), (0.1145, 0.7863, 0.0992), (-0.0039, -0.0481, 1.0519)),
    "deuteranopia": ((0.3673, 0.8606, -0.2279), (0.2801, 0.6726, 0.0473), (-0.0118, 0.0429, 0.9689)),
}
"""What becomes of linear red, green and blue (Machado, Oliveira and Fernandes, 2009)."""


def target_of(case: dict[str, Any]) -> Target:
    """The target; in JSON a device's rate limit is its rate, and tuples are lists."""
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in case["target"].items()}
    given["reserved"] = RESERVED_NICS | set(given.get("reserved", ()))
    for key in ("device", "switch"):
        if key in given:
            facts = dict(given[key])
            rate = facts.pop("shaping_bit_s", None)
            if "ovs" in facts:
                facts["ovs"] = OvsPort(**facts["ovs"] | {"others": tuple(facts["ovs"]["others"])})
            given[key] = Device(shaping=TokenBucket.for_rate(rate) if rate else None, **facts)
    if "slot" in given:
        given["slot"] = Slot(**given["slot"])
    given["routes"] = tuple(map(tuple, given.get("routes", ())))
    return Target(**given)


def shown(order: Order) -> str:
    """``place: command``, as one could type it."""
    return f"{order.place}: {shlex.join(PROGRAMS.get(word, word) for word in order.argv)}"


def outcome(case: dict[str, Any]) -> dict[str, Any]:
    """What comes out of a case, as JSON."""
    try:
        fault, target = create(case["kind"], case.get("parameters")), target_of(case)
        recipe = fault.recipe(target)
    except FaultError as error:
        return {"error": str(error)}
    signs = []
    for sign in fault.signs(target):
        said = sign._asdict() | ({"order": shown(sign.order)} if isinstance(sign, Probe) else {})
        signs.append({type(sign).__name__: said})
    return {
        "inject": [shown(order) for order in recipe.inject],
        "heal": [shown(order) for order in recipe.heal],
        "repeat": [[pause_s, shown(order)] for pause_s, order in recipe.repeat],
        "beside": [shown(order) for order in recipe.beside],
        "signs": signs,
        "effects": [asdict(effect) for effect in fault.effects(target)],
        "plot": asdict(fault.plot(target)),
    }


def lab(srgb: Sequence[float], sight: Sequence[Sequence[float]]) -> list[float]:
    """CIE Lab of a colour as it is seen."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in srgb]
    own = [min(1.0, max(0.0, sum(map(mul, row, linear)))) for row in sight]
    white = ((0.4339, 0.3762, 0.1899), (0.2126, 0.7152, 0.0722), (0.0178, 0.1095, 0.8727))
    x, y, z = (sum(map(mul, row, own)) for row in white)
    x, y, z = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
    return [116 * y - 16, 500 * (x - y), 200 * (y - z)]


def given_part(case: dict[str, Any]) -> dict[str, Any]:
    return {key: case[key] for key in ("kind", "parameters", "target") if key in case}


@pytest.mark.parametrize("name", CASES)
def test_what_comes_out_is_as_recorded(name: str) -> None:
    case = CASES[name]
    assert given_part(case) | json.loads(json.dumps(outcome(case))) == case


def test_every_fault_has_a_golden_case_that_is_accepted() -> None:
    assert {case["kind"] for case in CASES.values() if "error" not in case} == set(FAULTS)


@pytest.mark.parametrize("sight", SIGHTS)
def test_what_faults_do_can_be_told_apart_by_colour(sight: str) -> None:
    colours = {fault.colour for fault in FAULTS.values() if fault.colour is not None}
    seen = {colour: lab([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)], SIGHTS[sight]) for colour in colours}
    assert len(colours) == 6
    assert min(dist(seen[one], seen[other]) for one, other in combinations(colours, 2)) > 30


def test_every_parameter_is_in_a_golden_case() -> None:
    given = {(case["kind"], name) for case in CASES.values() for name in case.get("parameters", {})}
    assert {(kind, name) for kind, fault in FAULTS.items() for name in fault.model_fields} <= given


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if "error" not in case])
def test_a_recipe_declares_its_programs_and_can_be_undone(name: str) -> None:
    case = CASES[name]
    fault, target = create(case["kind"], case.get("parameters")), target_of(case)
    recipe = fault.recipe(target)
    probes = [sign.order for sign in fault.signs(target) if isinstance(sign, Probe)]
    orders = (*recipe.inject, *recipe.heal, *(order for _, order in recipe.repeat), *recipe.beside)
    at_hand = {"python3"} if target.slot else set()  # where QEMU runs
    at_hand |= {"rdma"} if target.soft_rdma else set()  # what made it
    at_hand |= {"ibportstate"} if target.rdma else set()  # InfiniBand only
    assert {order.argv[0].lstrip("-") for order in (*orders, *probes)} <= fault.needs | at_hand
    assert not any(order.argv[0].startswith("-") for order in (*recipe.inject, *recipe.beside)), "must not fail quietly"
    assert fault.kills or {order.place for order in recipe.inject} <= {order.place for order in recipe.heal}
    assert create(case["kind"], fault.model_dump(mode="json")) == fault
    elsewhere = [order for order in orders if order.place != target.host and qmp._ASK not in order.argv]
    assert fault.uses_port == bool(elsewhere)


def test_a_fault_says_whether_it_needs_a_virtual_machine() -> None:
    refused = {case["kind"] for case in CASES.values() if "needs a virtual machine" in case.get("error", "")}
    assert {kind for kind, fault in FAULTS.items() if fault.needs_machine} == refused


def test_a_fault_that_kills_a_direction_severs() -> None:
    severing = set()
    for case in CASES.values():
        if "error" not in case and severs(create(case["kind"], case.get("parameters")).effects(target_of(case))):
            severing.add(case["kind"])
    assert severing == {
        "nic_down", "switch_port_down", "switch_outage", "host_isolate", "route_blackhole", "blackhole", "loss", "flap",
        "nic_unbind", "ib_port_down", "ovs_drop", "cable_pull", "nic_unplug",
        "gid_removed",
    }  # fmt: skip


def write() -> None:
    """The expected half of every case anew."""
    for name, case in CASES.items():
        text = json.dumps(given_part(case) | outcome(case), indent=2, ensure_ascii=False)
        (FOLDER / f"{name}.json").write_text(text + "\n")


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        raise SystemExit("usage: python tests/faults/test_faults.py --write")
    write()
