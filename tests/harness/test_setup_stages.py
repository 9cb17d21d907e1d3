"""What the stages make of hosts that are not here: made-up ones, as r7525 nodes and others show themselves."""

import json
import subprocess
import sys
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from faults.base import Device
from harness.cluster.inventory import InventoryHost, InventoryNic
from harness.hosts.links import Link
from harness.setup import look, once
from harness.setup.base import Done, Once, Options, Port, Reboot, Refused, Seen, State, Stuck, ToDo, Unneeded
from harness.setup.core_source import ROOT, Core, archive
from harness.setup.nccl_topology import topology
from harness.setup.once import UNFINISHED
from harness.setup.runner import commands
from harness.setup.stages.catalogue import STAGES
from r2ccl_core.model.token_bucket import TokenBucket

BY_NAME = {stage.name: stage for stage in STAGES}
SOURCE = Core(Path("/here/r2ccl.tar.gz"), "d1", built_there=True)


def device(bus: str, nics: list[str], rdma: list[str], numa: str, above: list[str]) -> dict[str, Any]:
    link = {"speed": "16.0 GT/s PCIe", "width": "16"}
    bridges = [{"bus": bridge, "class": "0x060400"} | link for bridge in above]
    kind = {"bus": bus, "class": "0x020000" if nics else "0x030200"}
    return kind | link | {"gpu": not nics, "nics": nics, "rdma": rdma, "numa": numa, "above": bridges}


PROGRAMS = dict.fromkeys(look.PROGRAMS, "/usr/bin/it")
FRESH: dict[str, Any] = {
    "system": {"id": "ubuntu", "version": "22.04"},
    "no_machine": None,
    "programs": PROGRAMS | {"g++": None},
    "pythons": {"python3": {"version": [3, 10], "venv": False, "header": False, "path": "/usr/bin/python3"}},
    "pci": [
        device("0000:21:00.0", [], [], "0", ["0000:20:01.1"]),
        device("0000:81:00.0", ["ens5f0np0"], ["mlx5_2"], "1", ["0000:80:01.1", "0000:7e:00.0", "0000:7f:00.0"]),
        device("0000:81:00.1", ["ens5f1np1"], ["mlx5_3"], "1", ["0000:80:01.1", "0000:7e:00.0", "0000:7f:00.0"]),
        device("0000:e1:00.0", ["eno12399"], [], "-1", []),
    ],
    "gpu_driver": {"running": None, "on_disk": None, "shown": 0, "nvcc": None},
    "redirecting": ["0000:20:01.1", "0000:80:01.1"],
    "interfaces": {},
    "core": {"digest": None, "exists": False, "version": None},
    "nccl_tests": None,
    "topology": "",
}
"""An r7525 as CloudLab hands it out with Ubuntu 22.04."""


def nic(name: str, number: int, *, rate: str | None = "10 Gbit/s", speed: float = 100e9, **device: Any) -> Port:
    address = f"10.10.{number}.1/24"
    entry = InventoryNic.model_validate(
        {"rail": number, "mac": f"0c:42:a1:00:00:0{number}", "ipv4": address, "rate": rate}
    )
    link = Link(name, number, entry.mac, None, True, True, False, 1500, None, None, None, True, (address,))
    return Port(entry, link, Device("node0", name, **device), speed, 1, 2)


def host(facts: Mapping[str, Any] | None = None, python: str = "/opt/r2ccl/bin/python", **seen: Any) -> Seen:
    entry = InventoryHost(name="node0", address="192.0.2.1", python=python)
    known: dict[str, Any] = {"options": Options(core=SOURCE), "ports": (nic("ens5f0np0", 0), nic("ens5f1np1", 1))}
    return Seen(entry=entry, facts=deepcopy(FRESH) | dict(facts or {}), **(known | seen))


def state(name: str, seen: Seen) -> State:
    return BY_NAME[name].look(seen)


def ran(found: State) -> list[str]:
    assert isinstance(found, ToDo), found
    return [" ".join(run.argv) for step in found.steps for run in commands(step)]


def test_a_fresh_r7525_needs_everything_that_takes_a_stage() -> None:
    due = {name for name in BY_NAME if isinstance(state(name, host()), ToDo)}
    assert due == {"packages", "driver", "rates", "acs", "topology"}
    assert isinstance(state("core", host()), Stuck), "until there is a Python for it"
    assert isinstance(state("mtu", host()), Unneeded)


def test_packages_of_ubuntu_22_bring_a_newer_python() -> None:
    configure, update, install = ran(state("packages", host()))
    assert configure == "dpkg --configure -a"
    assert "apt-get -o DPkg::Lock::Timeout=600 update" in update
    assert install.endswith("--no-install-recommends g++ python3.11 python3.11-venv python3.11-dev")


def test_packages_of_ubuntu_24_complete_the_one_that_is_there() -> None:
    pythons = {"python3": {"version": [3, 12], "venv": False, "header": False, "path": "/usr/bin/python3"}}
    assert ran(state("packages", host({"pythons": pythons})))[-1].endswith("g++ python3-venv python3-dev")
    wheel = replace(SOURCE, built_there=False)
    with_wheel = host({"pythons": pythons}, options=Options(core=wheel))
    assert ran(state("packages", with_wheel))[-1].endswith("recommends python3-venv"), "nothing is built there"


def test_packages_without_apt_are_named() -> None:
    found = state(
        "packages",
        host({"programs": PROGRAMS | {"apt-get": None, "tc": None}, "system": {"id": "rocky", "version": "9"}}),
    )
    assert isinstance(found, Stuck)
    assert found.what.startswith("lacks iproute2") and "rocky 9 has no apt-get" in found.what


@pytest.mark.parametrize(
    ("driver", "stage", "kind", "words"),
    [
        ({}, "driver", ToDo, "2 GPUs"),
        ({"on_disk": "535.1", "nvcc": "/n"}, "driver", Done, "the driver runs after a reboot"),
        ({"on_disk": "535.1", "nvcc": "/n"}, "reboot", ToDo, "runs without it"),
        ({"on_disk": "535.2", "running": "535.1", "shown": 2, "nvcc": "/n"}, "reboot", ToDo, "the host runs 535.1"),
        ({"on_disk": "535.1", "running": "535.1", "shown": 2, "nvcc": "/n"}, "reboot", Done, "nothing waits"),
        ({"on_disk": "535.1", "running": "535.1", "shown": 2, "nvcc": "/n"}, "driver", Done, "shows all 2 GPUs"),
        ({"on_disk": "535.1", "running": "535.1", "shown": 1, "nvcc": "/n"}, "driver", Stuck, "shows 1 of 2 GPUs"),
    ],
)  # fmt: skip
def test_a_driver_is_installed_then_waits_for_a_reboot(
    driver: dict[str, Any], stage: str, kind: type, words: str
) -> None:
    facts = {"gpu_driver": FRESH["gpu_driver"] | driver, "pci": [FRESH["pci"][0], *FRESH["pci"]]}
    found = state(stage, host(facts))
    assert isinstance(found, kind) and words in found.what, found
    if stage == "reboot" and isinstance(found, ToDo):
        (step,) = found.steps
        assert isinstance(step, Reboot) and step.argv == ("systemctl", "reboot")


def test_hosts_without_gpus_are_spared_what_is_for_gpus() -> None:
    for name in ("driver", "acs", "topology"):
        assert isinstance(state(name, host({"pci": FRESH["pci"][1:]})), Unneeded), name


def test_what_is_no_machine_of_its_own_is_refused_by_name() -> None:
    for name in ("driver", "reboot", "acs"):
        found = state(name, host({"no_machine": "it is a network namespace"}))
        assert isinstance(found, Refused) and found.what.startswith("it is a network namespace, so its hardware")


PYTHON_312 = {"python3.12": {"version": [3, 12], "venv": True, "header": True, "path": "/usr/bin/python3.12"}}


def test_the_core_goes_where_the_inventorys_python_is() -> None:
    found = state("core", host({"pythons": FRESH["pythons"] | PYTHON_312}))
    assert isinstance(found, ToDo) and isinstance(found.steps[0], Once)
    assert found.steps[0].marker == "/opt/r2ccl/r2ccl-setup.digest" and found.steps[0].value == "d1"
    assert ran(found)[1] == "/usr/bin/python3.12 -m venv /opt/r2ccl"
    assert ran(found)[-1].endswith("pip --disable-pip-version-check --no-input install -q <sent>")


@pytest.mark.parametrize(
    ("core", "python", "kind", "words"),
    [
        ({"digest": "d1", "exists": True, "version": "0.1.0"}, "/opt/r2ccl/bin/python", Done, "has r2ccl 0.1.0"),
        ({"digest": "d0", "exists": True, "version": "0.1.0"}, "/opt/r2ccl/bin/python", ToDo, "has another r2ccl"),
        ({"digest": "d1", "exists": True, "version": None}, "/opt/r2ccl/bin/python", ToDo, "has no r2ccl"),
        ({"digest": UNFINISHED, "exists": True, "version": None}, "/opt/r2ccl/bin/python", ToDo, "has no r2ccl"),
        ({"digest": UNFINISHED, "exists": True, "version": "0.1.0"}, "/opt/r2ccl/bin/python", ToDo, "another r2ccl"),
        ({"digest": None, "exists": True, "version": "0.1.0"}, "/a/bin/python", Done, "none of ours and is left alone"),
        ({"digest": None, "exists": True, "version": None}, "/usr/bin/python3", Stuck, "/usr is there, is none"),
        ({"digest": None, "exists": False, "version": None}, "python3", Stuck, "names no environment"),
    ],
)  # fmt: skip
def test_an_environment_that_is_not_ours_is_never_written_to(
    core: dict[str, Any], python: str, kind: type, words: str
) -> None:
    found = state("core", host({"core": core, "pythons": PYTHON_312}, python))
    assert isinstance(found, kind) and words in found.what, found


def test_an_installation_that_broke_off_is_known_as_ours_and_goes_on(tmp_path: Path) -> None:
    prefix = tmp_path / "r2ccl"
    marker = prefix / "r2ccl-setup.digest"

    def run(*argvs: list[str]) -> subprocess.CompletedProcess[str]:
        asked = {"marker": str(marker), "value": "d1", "runs": [{"argv": argv, "limit_s": 9} for argv in argvs]}
        argv = [sys.executable, "-I", "-S", once.__file__, json.dumps(asked)]
        return subprocess.run(argv, capture_output=True, text=True, check=False)

    assert run(["mkdir", f"{prefix}/bin"], ["false"]).returncode == 1
    assert marker.read_text().strip() == UNFINISHED and (prefix / "bin").is_dir()
    assert run(["rmdir", f"{prefix}/bin"]).stdout == "made\n" and marker.read_text() == "d1\n"
    assert run(["false"]).stdout == "there\n"


def test_rates_are_limits_only_where_a_port_is_faster() -> None:
    slow = nic("eth0", 0, rate="25 Gbit/s", speed=25e9)
    assert isinstance(state("rates", host(ports=(slow, nic("eth1", 1, rate=None)))), Unneeded)
    bucket = TokenBucket.for_rate(10e9)
    shaped, bare = nic("eth0", 0, shaping=bucket), nic("eth1", 1)
    (command,) = ran(state("rates", host(ports=(shaped, bare))))
    assert command.startswith("tc qdisc replace dev eth1 root handle 2: tbf rate 10000000000bit burst ")
    assert isinstance(state("rates", host(ports=(shaped,))), Done)
    changed = nic("eth0", 0, occupied="tbf")
    assert len(ran(state("rates", host(ports=(changed,))))) == 1, "another rate of ours"
    found = state("rates", host(ports=(shaped, nic("eth1", 1, occupied="htb"))))
    assert isinstance(found, Stuck) and "eth1 (htb)" in found.what


def test_access_control_goes_bridge_by_bridge() -> None:
    assert ran(state("acs", host())) == [f"setpci -s {bridge} ECAP_ACS+6.w=0000" for bridge in FRESH["redirecting"]]
    assert isinstance(state("acs", host({"redirecting": []})), Done)


def test_the_access_control_register_is_found_in_the_configuration_space(tmp_path: Path) -> None:
    """Two capabilities: advanced errors at 0x100, which points on to access control at 0x150."""
    config = bytearray(4096)
    config[0x100:0x104] = (0x150 << 20 | 1 << 16 | 0x01).to_bytes(4, "little")
    config[0x150:0x154] = (1 << 16 | look.ACS).to_bytes(4, "little")
    config[0x156:0x158] = (0x1D).to_bytes(2, "little")
    (tmp_path / "config").write_bytes(config)
    assert look.acs_control(tmp_path) == 0x1D
    (tmp_path / "config").write_bytes(config[:256])
    assert look.acs_control(tmp_path) is None, "no right to see more than the first 256 bytes"
    config[0x100:0x104] = (0x100 << 20 | 1 << 16 | 0x01).to_bytes(4, "little")
    (tmp_path / "config").write_bytes(config)
    assert look.acs_control(tmp_path) is None, "a loop ends"


def test_the_topology_says_where_nics_hang_and_how_fast_they_are_allowed_to_be() -> None:
    system = ElementTree.fromstring(topology(FRESH["pci"], host().ports))
    assert [cpu.get("numaid") for cpu in system] == ["0", "1"]
    (gpu,) = system.findall("cpu[@numaid='0']/pci")
    assert (gpu.get("busid"), gpu.get("class")) == ("0000:21:00.0", "0x030200")
    (switch,) = system.findall("cpu[@numaid='1']/pci")
    assert switch.get("busid") == "0000:7e:00.0", "the switch's upper port"
    (card,) = switch
    assert card.get("busid") == "0000:81:00.0"
    assert {(pci.get("link_speed"), pci.get("link_width")) for pci in system.iter("pci")} == {("16.0 GT/s PCIe", "16")}
    speeds = {net.get("name"): net.get("speed") for net in card.findall("nic/net")}
    assert speeds == dict.fromkeys(("mlx5_2", "ens5f0np0", "mlx5_3", "ens5f1np1"), "10000")
    assert "eno12399" not in topology(FRESH["pci"], host().ports), "it carries SSH"
    text = topology(FRESH["pci"], host().ports)
    assert isinstance(state("topology", host({"topology": text.strip()})), Done)


def test_nccl_tests_are_found_by_their_folder(tmp_path: Path) -> None:
    (tmp_path / "build").mkdir()
    program = tmp_path / "build" / "all_reduce_perf"
    program.write_text("")
    assert look.nccl_tests(str(tmp_path)) is None, "it cannot be run"
    program.chmod(0o755)
    assert look.nccl_tests(str(tmp_path)) == str(tmp_path / "build")
    assert look.nccl_tests("no-such-package-of-anybody") is None
    found = state("nccl_tests", host({"nccl_tests": "/p"}, options=Options(nccl_tests="/p")))
    assert found == Done('workload.nccl_tests = "/p"')


def test_no_stage_hands_a_shell_anything() -> None:
    for stage in STAGES:
        found = stage.look(host({"pythons": PYTHON_312}))
        for step in found.steps if isinstance(found, ToDo) else ():
            assert all(run.argv[0] not in ("sh", "bash") for run in commands(step))


def test_the_same_checkout_is_the_same_archive() -> None:
    assert archive(ROOT) == archive(ROOT)
