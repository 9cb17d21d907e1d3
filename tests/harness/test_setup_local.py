"""The set-up for real, twice, on hosts of a local cluster: the second time changes nothing."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pytest
from conditions import until

from faults.registry import create
from harness.cluster import export, inventory_file, rights, state
from harness.cluster.discover import discover
from harness.cluster.existing import ExistingCluster, ssh_host
from harness.cluster.gather import looking_at
from harness.cluster.inventory import Inventory
from harness.cluster.local import LocalCluster
from harness.cluster.spec import InventorySpec, LocalSpec
from harness.commands.setup import Asked, go_through, setup
from harness.errors import ExitCode, HostError
from harness.hosts.base import Host
from harness.hosts.each import all_results, for_each
from harness.hosts.facts import read_device
from harness.hosts.state import read_state
from harness.interrupt import stoppable
from harness.setup.base import Options, Run, Stage, ToDo
from harness.setup.core_source import core_file
from harness.setup.runner import Result, Worker
from harness.setup.stages.catalogue import STAGES, chosen
from harness.sweep.owner import Owner
from harness.sweep.targets import known
from r2ccl_core.errors import UsageError

ROOT = Path(__file__).parents[2]
RATE = "100 Mbit/s"
HARDWARE = ("driver", "reboot", "acs")
CHANGED = {"addresses", "mtu", "arp", "rates"}
SOFTWARE = chosen(["packages", "core"], [])
NETWORK = chosen([], ["packages", "core"])

pytestmark = [
    pytest.mark.netns,
    pytest.mark.skipif(not rights.have(), reason="needs the right to make network namespaces"),
]


@pytest.fixture(scope="module")
def hosts() -> Iterator[Inventory]:
    """Two hosts whose NICs are known by MAC and address only, with a rate that nobody has set yet."""
    with LocalCluster(LocalSpec(name="bare", hosts=2, nics=2, rate=None)) as cluster:
        record = state.read(cluster.tag)
        assert record is not None
        with looking_at(export.of_local(record, sys.executable)) as place:
            found = discover(place).inventory
        assert found is not None
        document = found.model_dump(by_alias=True, exclude_none=True)
        for host in document["host"]:
            for nic in host["nics"]:
                del nic["name"]
                nic["rate"] = RATE
        yield Inventory.model_validate(document)


@pytest.fixture
def cluster(hosts: Inventory) -> Iterator[ExistingCluster]:
    made = ExistingCluster(InventorySpec(inventory="hosts.toml", content=hosts))
    with made:
        yield made


def set_up(
    hosts: Inventory, options: Options, stages: Sequence[Stage] = NETWORK, *, change: bool = True
) -> dict[str, dict[str, Result]]:
    workers = {host.name: Worker(host, options, stages, change=change) for host in hosts.hosts}
    results = all_results(for_each([w.host for w in workers.values()], lambda h: workers[h.name].run(print)))
    return {name: {result.stage: result for result in told} for name, told in results.items()}


def states(cluster: ExistingCluster) -> Mapping[str, Mapping[str, str]]:
    def read(host: Host) -> Mapping[str, str]:
        keys = [f"net/ipv4/conf/{nic}/{key}" for nic in ("eth0", "eth1") for key in ("arp_ignore", "arp_announce")]
        return {**read_state(host, ["eth0", "eth1", "mgmt0"]), "arp": host.run(["sysctl", *keys]).stdout}

    return all_results(for_each(cluster.hosts, read))


def as_after_a_reboot(cluster: ExistingCluster) -> None:
    """What a reboot takes: an address, a link that is up, ARP settings, MTU, rate limits."""
    for host in cluster.hosts:
        host.run(["sysctl", "-qw", "net.ipv4.conf.all.arp_ignore=0", "net.ipv4.conf.all.arp_announce=0"])
        for nic in ("eth0", "eth1"):
            host.run(["sysctl", "-qw", f"net.ipv4.conf.{nic}.arp_ignore=0", f"net.ipv4.conf.{nic}.arp_announce=0"])
            host.run(["tc", "qdisc", "del", "dev", nic, "root"], check=False)
            host.run(["ip", "link", "set", "dev", nic, "mtu", "1400"])
        host.run(["ip", "address", "flush", "dev", "eth1"])
        host.run(["ip", "link", "set", "dev", "eth0", "down"])


def test_what_a_reboot_takes_is_restored_and_the_second_time_changes_nothing(
    hosts: Inventory, cluster: ExistingCluster
) -> None:
    management = {name: told["mgmt0 link"] + told["mgmt0 qdiscs"] for name, told in states(cluster).items()}
    options = Options(mtu=1450)
    as_after_a_reboot(cluster)
    before = states(cluster)
    looked = set_up(hosts, options, change=False)
    assert states(cluster) == before, "--check and --dry-run change nothing"
    made = set_up(hosts, options)
    after = states(cluster)
    again = set_up(hosts, options)
    assert states(cluster) == after
    for name in ("host0", "host1"):
        assert {stage for stage, told in looked[name].items() if told.status == "to do"} == CHANGED, looked[name]
        assert {stage for stage, told in made[name].items() if told.status == "made"} == CHANGED, made[name]
        assert not [told for told in again[name].values() if told.status in ("made", "to do", "failed", "blocked")]
        for stage in HARDWARE:
            told = again[name][stage]
            assert told.status == "refused" and "so its hardware is not its own" in told.what and told.remedy
        assert "10.101.0." in after[name]["eth1 addresses"] and "mtu 1450" in after[name]["eth1 link"]
        assert "arp_ignore = 1" in after[name]["arp"] and "arp_announce = 2" in after[name]["arp"]
        assert after[name]["mgmt0 link"] + after[name]["mgmt0 qdiscs"] == management[name]
    with pytest.raises(HostError, match="exit status"):
        cluster.hosts[0].run(["sh", "-c", "sysctl net.ipv4.conf.mgmt0.arp_ignore | grep 1"])


def test_a_fault_on_a_nic_that_set_up_has_limited_is_healed_to_that_limit(
    hosts: Inventory, cluster: ExistingCluster
) -> None:
    set_up(hosts, Options())
    host = cluster.hosts[0]
    nic, nics = host.nics[0], {host.name: host.nics for host in cluster.hosts}
    device = read_device(host, nic.name, nic.rate_bit_s)
    assert device.shaping is not None and device.occupied is None
    before = read_state(host, [nic.name])
    recipe = create("rate_limit", {"share": 0.1}).recipe(replace(known(host.name, nic, nics), device=device))
    for order in recipe.inject:
        host.run(order.argv)
    assert read_state(host, [nic.name]) != before
    for order in recipe.heal:
        host.run(order.argv)
    assert read_state(host, [nic.name]) == before


def test_the_nic_that_carries_ssh_is_never_touched(hosts: Inventory, cluster: ExistingCluster) -> None:
    host = cluster.hosts[0]
    mac = host.run(["cat", "/sys/class/net/mgmt0/address"]).stdout.strip()
    wrong = hosts.hosts[0].nics[0].model_copy(update={"mac": mac})
    entry = hosts.hosts[0].model_copy(update={"nics": (wrong, hosts.hosts[0].nics[1])})
    before = states(cluster)["host0"]
    told = set_up(hosts.model_copy(update={"hosts": (entry,)}), Options(mtu=1300))["host0"]
    assert told["addresses"].status == "failed"
    assert told["addresses"].what == "rail 0: mgmt0 carries SSH or the default route, and is never touched"
    assert {told[stage].status for stage in ("mtu", "arp", "rates")} == {"blocked"}
    assert states(cluster)["host0"] == before


def test_a_host_that_a_sweep_holds_is_left_alone_and_the_others_are_set_up(hosts: Inventory) -> None:
    with ExistingCluster(InventorySpec(inventory="hosts.toml", content=hosts)) as sweep:
        assert sweep.hosts[1].claim(Owner.this().values()) is None
        arp = chosen(["arp"], [])
        workers = {host.name: Worker(host, Options(), arp, change=True) for host in hosts.hosts}
        results = for_each([w.host for w in workers.values()], lambda h: workers[h.name].run(print))
        assert isinstance(results["host0"], list)
        assert isinstance(results["host1"], HostError) and "is held by process" in str(results["host1"])
        looked = Worker(hosts.hosts[1], Options(), arp, change=False).run(print)
        assert looked[0].status in ("done", "to do"), "looking disturbs nobody"


def test_a_stage_that_fails_is_told_and_what_needs_it_is_blocked(hosts: Inventory, cluster: ExistingCluster) -> None:
    refused = Options(mtu=1450, nccl_tests="/nowhere/nccl-tests")
    far = hosts.hosts[0].nics[0].model_copy(update={"mac": "02:00:00:00:00:01"})
    entry = hosts.hosts[0].model_copy(update={"nics": (far,), "python": "/usr/bin/python3"})
    told = set_up(hosts.model_copy(update={"hosts": (entry,)}), refused)["host0"]
    assert told["addresses"].what == "rail 0: no interface has the MAC address 02:00:00:00:00:01"
    assert told["addresses"].remedy == "compare with `ip link`"
    assert told["nccl_tests"].status == "failed" and "/nowhere/nccl-tests is not a folder" in told["nccl_tests"].what
    assert told["mtu"].status == "blocked" and told["mtu"].what == "addresses failed"


def test_a_wish_to_stop_ends_what_the_hosts_run(hosts: Inventory) -> None:
    """Ctrl-C reaches the main thread alone; it must not wait for an installation of minutes."""
    mark = "86399.25"
    endless = Stage("endless", "", "stays", lambda _: ToDo("not so", (Run(("sleep", mark), "", 90_000.0),)))
    workers = {host.name: Worker(host, Options(), (endless,), change=True) for host in hosts.hosts}
    begun: list[str] = []
    ended: list[Result] = []
    main = threading.main_thread().ident
    assert main is not None

    def tell(result: Result) -> None:
        if result.status == "begun":
            begun.append(result.host)
            if len(begun) == len(workers):
                signal.pthread_kill(main, signal.SIGINT)
        else:
            ended.append(result)

    with stoppable(), pytest.raises(KeyboardInterrupt):
        go_through(workers, tell)
    assert not ended, "who stops it is not told that it failed"
    host = ssh_host(hosts.hosts[0])
    host.connect()
    shown = ["sh", "-c", "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '"]
    try:
        until(lambda: f"sleep {mark}" not in host.run(shown, check=False).stdout)
    finally:
        host.close()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    words = ["wheel", "-q", str(ROOT), "--no-deps", "--no-build-isolation", "-w", str(folder)]
    done = subprocess.run([sys.executable, "-m", "pip", *words], capture_output=True, text=True, timeout=270)
    if done.returncode:
        pytest.skip(f"no wheel can be built here: {done.stderr.strip().splitlines()[-1]}")
    return next(folder.glob("*.whl"))


@pytest.mark.long  # compiles the package on two hosts
@pytest.mark.slow
def test_the_package_is_installed_once_on_hosts_that_share_a_file_system(
    hosts: Inventory, wheel: Path, tmp_path: Path
) -> None:
    """Without the Internet: what the package needs is taken from the folder that this Python has it in."""
    python = str(tmp_path / "r2ccl" / "bin" / "python")
    here = [host.model_copy(update={"python": python}) for host in hosts.hosts]
    shared = str(Path(numpy.__file__).parents[1])
    with core_file(wheel) as core:
        options = Options(core=core, site_packages=shared)
        made = set_up(hosts.model_copy(update={"hosts": tuple(here)}), options, SOFTWARE)
        assert {told["core"].status for told in made.values()} == {"made"}, made
        installed = tmp_path / "r2ccl" / "r2ccl-setup.digest"
        before = installed.stat().st_mtime_ns
        again = set_up(hosts.model_copy(update={"hosts": tuple(here)}), options, SOFTWARE)
        assert {told["core"].status for told in again.values()} == {"done"}
        assert installed.stat().st_mtime_ns == before
        assert not list(Path("/tmp").glob("r2ccl-????????????????/*.whl")), "what was sent is gone again"
        other = replace(core, digest="0" * 64)
        told = set_up(
            hosts.model_copy(update={"hosts": tuple(here)}), replace(options, core=other), SOFTWARE, change=False
        )
        assert told["host0"]["core"].what == f"{python} has another r2ccl"
    ask = "import r2ccl_core, r2ccl_core._native; from r2ccl_core.native import plugin_path; print(plugin_path())"
    host = ssh_host(here[0])
    host.connect()
    try:
        plugin = host.run([python, "-P", "-c", ask]).stdout.strip()
    finally:
        host.close()
    assert plugin.startswith(str(tmp_path)), "its own, not that of the folder it shares"


def test_a_folder_that_is_not_ours_is_left_alone(hosts: Inventory, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    entry = hosts.hosts[0].model_copy(update={"python": str(tmp_path / "bin" / "python")})
    with core_file(None) as core:
        told = set_up(hosts.model_copy(update={"hosts": (entry,)}), Options(core=core), SOFTWARE)["host0"]["core"]
    assert (told.status, told.what) == ("failed", f"{tmp_path} is there, is none of ours, and its Python has no r2ccl")
    assert list(tmp_path.iterdir()) == [tmp_path / "bin"]


def test_the_command_ends_with_a_status_for_scripts(
    hosts: Inventory, cluster: ExistingCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "hosts.toml"
    inventory_file.save(hosts, path)
    cluster.hosts[0].run(["ip", "address", "flush", "dev", "eth1"])
    asked = Asked(path, skip=["packages,core", "rates"])
    assert setup(replace(asked, check=True, json=True)) is ExitCode.WRONG
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (todo,) = (event for event in events if event.get("status") == "to do")
    assert (todo["host"], todo["stage"]) == ("host0", "addresses")
    assert todo["commands"][0]["argv"] == ["ip", "address", "add", "10.101.0.1/24", "dev", "eth1"]
    assert events[-1]["event"] == "end" and events[-1]["status"] == 1
    assert setup(replace(asked, dry_run=True)) is ExitCode.OK, "it was asked what would be done"
    assert "    ip address add 10.101.0.1/24 dev eth1\n        # the address of rail 1\n" in capsys.readouterr().out
    assert setup(asked) is ExitCode.OK
    assert "host0      addresses   made" in capsys.readouterr().out
    assert setup(replace(asked, check=True)) is ExitCode.OK
    unreached = hosts.hosts[1].model_copy(update={"port": 9})
    inventory_file.save(hosts.model_copy(update={"hosts": (hosts.hosts[0], unreached)}), path)
    assert setup(replace(asked, check=True)) is ExitCode.WRONG
    told = capsys.readouterr()
    assert told.err.startswith("host1: 198.") and "cannot connect" in told.err
    assert "2 hosts: " in told.out and told.out.endswith(", 1 host not set up\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"only": ["arb"]}, "--only: arb: is not a stage; did you mean 'arp'?"),
        ({"only": [""]}, "--only: names no stage; leave it out for all of them"),
        ({"check": True, "dry_run": True}, "--check: --dry-run: give only one of them: both change nothing"),
        (
            {"core": Path("x.tar")},
            "--core: x.tar: is not a wheel; make one with `pip wheel --no-deps .`, or leave it out",
        ),
        ({"core": Path("absent.whl")}, "--core: absent.whl: cannot be read: No such file or directory"),
        ({"site_packages": "lib"}, "--site-packages: lib: must be an absolute path on the hosts"),
        ({"skip": [",".join(stage.name for stage in STAGES)]}, "leaves no stage to be done"),
    ],
)
def test_bad_input_is_one_line(hosts: Inventory, tmp_path: Path, words: dict[str, Any], said: str) -> None:
    path = tmp_path / "hosts.toml"
    inventory_file.save(hosts, path)
    with pytest.raises(UsageError) as refused:
        setup(Asked(path, **words))
    assert str(refused.value).endswith(said) and "\n" not in str(refused.value)
