"""`harness cloudlab setup` on virtual machines, from a manifest to hosts that need nothing more, with their restarts.

    pytest -m vms tests/harness/test_vms_setup.py

The hosts are as bare as granted ones: data NICs without addresses, ARP as Linux has it, no rate limits, no package of
ours. Their GPU and its driver are stand-ins, files on each guest's disk, since no machine here has one; that a new
driver waits for a restart, the restart, and what outlasts it are real.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import guests
import numpy
import pytest

from harness.cluster.spec import VmsSpec
from harness.cluster.vms.cluster import VmsCluster
from harness.hosts.each import all_results, for_each
from harness.setup.reboot import boot_id

ROOT = Path(__file__).parents[2]
HOSTS = ("host0", "host1", "host2")
COMMAND = (sys.executable, "-c", "from harness.commands.cli import main; main()")
LIMIT_S = 3000

AT_BOOT = """\
#!/bin/sh
# The last thing of a boot: data NICs as nobody has set them up, and a driver that is loaded if it is there.
for nic in eth0 eth1; do
    ip address flush dev $nic
    echo 0 >/proc/sys/net/ipv4/conf/$nic/arp_ignore
    echo 0 >/proc/sys/net/ipv4/conf/$nic/arp_announce
done
echo 0 >/proc/sys/net/ipv4/conf/all/arp_ignore
echo 0 >/proc/sys/net/ipv4/conf/all/arp_announce
mkdir -p /run/pci/0000:7f:00.0 /run/module/nvidia
echo 0x030200 >/run/pci/0000:7f:00.0/class
echo 0x10de >/run/pci/0000:7f:00.0/vendor
mount -t overlay -o lowerdir=/run/pci:/sys/bus/pci/devices overlay /sys/bus/pci/devices
[ -e /opt/driver/version ] || exit 0
cp /opt/driver/version /run/module/nvidia/version
mount -t overlay -o lowerdir=/run/module:/sys/module overlay /sys/module
"""
STAND_INS = {
    "/etc/rc.local": AT_BOOT,
    "/usr/local/sbin/modinfo": "#!/bin/sh\nexec cat /opt/driver/version\n",
    "/usr/local/bin/nvidia-smi": "#!/bin/sh\n[ -e /sys/module/nvidia ] && echo 'GPU 0: stand-in'\n",
    "/usr/local/bin/nvcc": "#!/bin/sh\n",
}
WRITE = "import pathlib, sys; p = pathlib.Path(sys.argv[1]); p.write_text(sys.argv[2]); p.chmod(0o755)"

pytestmark = [pytest.mark.vms, pytest.mark.timeout(7200)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[VmsCluster]:
    guests.needed()
    with VmsCluster(VmsSpec(name="granted", hosts=3, nics=2, rate=None, disk="1GiB")) as made:
        yield made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    words = ["wheel", "-q", str(ROOT), "--no-deps", "-w", str(folder)]
    done = subprocess.run([sys.executable, "-m", "pip", *words], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return next(folder.glob("*.whl"))


def harness(*words: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=LIMIT_S, cwd=ROOT)
    print(done.stdout, done.stderr)
    return done


def events(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, dict[str, Any]]]:
    """The last word on every stage of every host."""
    told: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in HOSTS}
    for line in map(json.loads, done.stdout.splitlines()):
        if line["event"] == "stage":
            told[line["host"]][line["stage"]] = line
    return told


def boots(cluster: VmsCluster) -> dict[str, str]:
    return dict(all_results(for_each(cluster.hosts, boot_id)))


def make_bare(cluster: VmsCluster) -> None:
    """The stand-ins, and a first boot with them, after which the driver is put on disk."""
    for host in cluster.hosts:
        for path, text in STAND_INS.items():
            host.run([sys.executable, "-I", "-S", "-c", WRITE, path, text])
        host.run(["sh", "-c", "/etc/rc.local && mkdir -p /opt/driver && echo 535.1 >/opt/driver/version"])


def test_hosts_are_set_up_from_a_manifest_and_restart_on_the_way(
    cluster: VmsCluster, wheel: Path, tmp_path: Path
) -> None:
    manifest, hosts = tmp_path / "manifest.xml", tmp_path / "hosts.toml"
    done = harness("cloudlab", "manifest", "--local", cluster.tag, "--out", str(manifest))
    assert done.returncode == 0, done.stderr
    make_bare(cluster)
    before = boots(cluster)
    login = cluster.hosts[0].login  # type: ignore[attr-defined]
    words = ("--user", "root", "--key", str(login.key_file), "--known-hosts", str(login.known_hosts))
    made = harness("cloudlab", "inventory", str(manifest), "-o", str(hosts), *words, "--rate", "100 Mbit/s")
    assert made.returncode == 0, made.stderr

    shared = str(Path(numpy.__file__).parents[1])
    asked = ("cloudlab", "setup", str(hosts), "--json", "--core", str(wheel), "--site-packages", shared)
    first = harness(*asked, "--mtu", "1450")
    assert first.returncode == 0, first.stderr
    for name, told in events(first).items():
        status = {stage: event["status"] for stage, event in told.items()}
        assert status["reboot"] == status["core"] == "made", (name, told)
        assert status["addresses"] == status["mtu"] == status["arp"] == status["rates"] == "made", (name, told)
        assert status["topology"] == "made" and status["driver"] == status["packages"] == "done", (name, told)
        assert not {"failed", "blocked", "to do"} & set(status.values())
    now = boots(cluster_again(cluster))
    assert all(now[name] != before[name] for name in HOSTS), "every host has restarted"

    second = harness(*asked, "--mtu", "1450")
    assert second.returncode == 0, second.stderr
    assert not [event for told in events(second).values() for event in told.values() if event["status"] == "made"]
    assert boots(cluster) == now
    ask = "import r2ccl_core.native as n; n.load(); print(n.plugin_path())"
    for host in cluster.hosts:
        assert host.run(["/opt/r2ccl/bin/python", "-P", "-c", ask], timeout_s=300).stdout.startswith("/opt/r2ccl/")
        assert "10.101.0." in host.run(["ip", "address", "show", "dev", "eth1"]).stdout


def cluster_again(cluster: VmsCluster) -> VmsCluster:
    """The same, with sessions to the boots that run now."""
    for host in cluster.hosts:
        host.close()
        host.connect()
    return cluster
