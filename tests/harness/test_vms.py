"""Virtual machines as hosts: what they are made from, as values; and one cluster of them for real (marker `vms`)."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import guests
import pytest
from pydantic import ValidationError

from harness.cluster import namespaces, netlink, processes, state
from harness.cluster.clean import clean
from harness.cluster.layout import MANAGEMENT_ALIAS, SUBNETS, lay_out_vms
from harness.cluster.spec import VmsSpec
from harness.cluster.vms import accelerator, debian, guest, kernel, machine
from harness.cluster.vms.cluster import VmsCluster, check_disk, check_kernel, check_taps, find_program, make_disk
from harness.cluster.vms.kernel import Kernel
from harness.errors import ClusterError
from harness.experiment.file import load

REPOSITORY = Path(__file__).parents[2]
TAG = "0123abcd"


@pytest.fixture
def unpacked(tmp_path: Path) -> Kernel:
    """A kernel's folder, with files that hold their own names."""
    folder = tmp_path / "linux-image-amd64"
    for name in ("lib/modules/6.1.0/kernel/drivers/virtio/virtio.ko", "lib/modules/6.1.0/kernel/fs/9p/9p.ko.xz"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(name)
    (folder / "busybox").write_text("busybox")
    (folder / "release").write_text("6.1.0\n")
    return Kernel(folder)


def entries(archive: bytes) -> dict[str, tuple[int, bytes]]:
    """Mode and content by name, read as the kernel's documentation of the format says."""
    found, at = {}, 0
    while True:
        assert archive[at : at + 6] == b"070701"
        fields = [int(archive[at + 6 + 8 * i : at + 14 + 8 * i], 16) for i in range(13)]
        name = archive[at + 110 : at + 110 + fields[11] - 1].decode()
        data = -(-(at + 110 + fields[11]) // 4) * 4
        if name == "TRAILER!!!":
            return found
        found[name] = (fields[1], archive[data : data + fields[6]])
        at = -(-(data + fields[6]) // 4) * 4


def test_the_initial_files_hold_what_boots_and_every_folder_before_its_files(unpacked: Kernel) -> None:
    found = entries(guest.initial_files(unpacked))
    assert found["init"][1].startswith(b"#!/bin/busybox sh")
    assert found["modules/order"][1] == b"virtio.ko\n9p.ko.xz\n"
    assert found["modules/9p.ko.xz"][1].endswith(b"9p.ko.xz")
    assert all(mode & 0o777 == 0o755 for mode, _ in found.values())
    names = list(found)
    assert names.index("bin") < names.index("bin/busybox")


def test_a_machine_has_a_port_of_its_own_for_every_nic_and_a_tap_behind_it(unpacked: Kernel) -> None:
    spec = VmsSpec(hosts=2, nics=2, memory="512MiB")
    host = lay_out_vms(spec, TAG, SUBNETS[0]).hosts[1]
    argv = machine.command("qemu", "tcg", spec, 1, host, unpacked, Path("/c"))
    devices = [argv[i + 1] for i, word in enumerate(argv) if word == "-device"]
    assert "pcie-root-port,id=port-eth1,chassis=2,slot=2" in devices
    assert "virtio-net-pci,id=eth1,netdev=net-eth1,bus=port-eth1,mac=52:54:00:cc:01:01,romfile=" in devices
    assert "tap,id=net-eth1,ifname=h1r1,script=no,downscript=no" in argv
    assert "512M" in argv
    assert argv[argv.index("-append") + 1].endswith("r2ccl.host=/c/host1.sh")
    assert argv[argv.index("-smp") + 1] == "1,maxcpus=2", "with one, memory barriers are not translated"


def test_a_disk_and_a_release_of_debian_come_beside_what_every_guest_has(unpacked: Kernel) -> None:
    spec = VmsSpec(hosts=1, nics=24, disk="1GiB", debian="bullseye")
    host = lay_out_vms(spec, TAG, SUBNETS[0]).hosts[0]
    argv = machine.command("qemu", "tcg", spec, 0, host, unpacked, Path("/c"), Path("/cache/debian-bullseye"))
    assert "file=/c/host0.disk,format=raw,if=none,id=disk,cache=unsafe" in argv
    assert "local,id=debian,path=/cache/debian-bullseye,security_model=none,readonly=on,multidevs=remap" in argv
    assert argv[argv.index("-append") + 1].endswith("r2ccl.host=/c/host0.sh r2ccl.debian")
    on_the_bus = [argv[i + 1] for i, word in enumerate(argv) if word == "-device" and "bus=" not in argv[i + 1]]
    assert len(on_the_bus) <= 30, "a PCI bus has 32 slots, of which the chipset takes two"
    assert "FILES=hosts" in guest.host_script(spec, 0, host, unpacked, Path("/c")).splitlines()


def test_the_initial_files_say_which_folders_a_release_of_debian_takes_from_this_machine(unpacked: Kernel) -> None:
    (ext4 := unpacked.modules / "kernel/fs/ext4/ext4.ko").parent.mkdir(parents=True)
    ext4.write_text("ext4")
    found = entries(guest.initial_files(unpacked, debian.binds(Path("/c"), unpacked.modules), disk=True))
    package = f"{REPOSITORY}/harness /usr/lib/python3/dist-packages/harness"
    lines = ["/c /c", f"{unpacked.modules} {unpacked.modules}", package]
    assert found["binds"][1].decode().splitlines() == lines
    assert found["modules/order"][1] == b"virtio.ko\n9p.ko.xz\next4.ko\n"
    plain = entries(guest.initial_files(unpacked))
    assert plain["binds"][1] == b"" and "modules/ext4.ko" not in plain


def test_a_disk_is_an_empty_file_system_that_takes_no_room_yet(tmp_path: Path) -> None:
    make_disk(tmp_path / "disk", 1 << 30)
    status = (tmp_path / "disk").stat()
    assert status.st_size == 1 << 30 and status.st_blocks * 512 < 64 << 20
    assert (tmp_path / "disk").read_bytes()[1080:1082] == b"\x53\xef", "the magic number of ext4"


def test_disks_that_find_no_room_are_told_before_anything_is_made() -> None:
    with pytest.raises(ClusterError, match=r"disks may take .* in /tmp, .* free; choose .* less cluster.disk"):
        check_disk(VmsSpec(hosts=3, disk="999999GiB"))
    check_disk(VmsSpec(hosts=3))


def test_without_mmdebstrap_there_is_no_release_of_debian(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterError, match="install the package mmdebstrap"):
        debian.prepared("bullseye", print)


def test_what_mmdebstrap_refuses_is_one_line_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can make a root")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    script = "mount -t tmpfs x /tmp; echo 'I: go' >&2; echo \"E: no such suite $$\" >&2; exit 25"
    (tmp_path / "mmdebstrap").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "mmdebstrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(ClusterError, match=r"^Debian nosuch cannot be had: no such suite 1; look at cluster.debian"):
        debian.prepared("nosuch", print)
    assert tmp_path.exists(), "its mounts are its own"
    assert list(kernel.cache().iterdir()) == []


def test_the_host_script_sets_up_what_the_layout_says(unpacked: Kernel) -> None:
    spec = VmsSpec(hosts=2, nics=2, rate="200 Mbit/s", mtu=4200, rdma="rxe")
    host = lay_out_vms(spec, TAG, SUBNETS[0]).hosts[1]
    lines = guest.host_script(spec, 1, host, unpacked, Path("/c")).splitlines()
    assert "NAME=host1" in lines
    assert "RDMA=rxe" in lines
    shape = "handle 2: tbf rate 200000000bit burst 133120b limit 400000b"
    assert f"    nic eth1 52:54:00:cc:01:01 10.101.0.2/24 4200 {shape}" in lines
    assert "    nic mgmt0 52:54:00:cc:01:ff 198.18.0.2/24 1500" in lines
    checked = subprocess.run(["sh", "-n"], input="\n".join(lines), text=True, capture_output=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_the_management_nic_of_a_guest_is_marked_as_that(unpacked: Kernel) -> None:
    """By its own script, in a network namespace: else a program there would send its data over it, too."""
    spec = VmsSpec(hosts=2, nics=1)
    script = guest.host_script(spec, 1, lay_out_vms(spec, TAG, SUBNETS[0]).hosts[1], unpacked, Path("/c"))
    values, rest = script.split("nics() {", 1)
    calls, _, functions = rest.partition("named() {")
    functions = functions.split("\nip link set dev lo up", 1)[0]
    macs = {line.split()[1]: line.split()[2] for line in calls.splitlines() if line.startswith("    nic ")}
    made = [f"ip link add x{name} address {mac} type veth peer name y{name}" for name, mac in macs.items()]
    look = "for name in eth0 mgmt0; do ip -d link show $name | grep -c alias; done; ip link show mgmt0 | grep alias"
    nics = "nics() {" + calls.partition("\n}")[0] + "\n}"
    lines = ["mount -t sysfs here /sys", *made, values, nics, "named() {" + functions, "nics", look]
    argv = ["unshare", "--map-root-user", "--net", "--mount", "sh", "-c", "\n".join(lines)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=240)
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip(f"no network namespace can be made here: {done.stderr.strip()}")
    assert done.stdout.split() == ["0", "1", "alias", *MANAGEMENT_ALIAS.split()], done.stderr


def test_ranks_of_guests_may_take_longer_to_start_and_between_two_lines() -> None:
    limits = {
        kind: (experiment.ready_s, experiment.silence_s)
        for kind in ("local", "vms")
        for experiment in [load(guests.SMOKE, [f"cluster.kind={kind}"])]
    }
    assert limits == {"local": (20, 15), "vms": (240, 60)}, "a trial may take 120 s"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("nics", 25),
        ("hosts", 33),
        ("memory", "64MiB"),
        ("kernel", "vmlinux"),
        ("kernel", "../x"),
        ("rdma", "siw"),
        ("disk", "1MiB"),
        ("debian", "../x"),
    ],
)
def test_what_no_guest_can_have_is_refused(key: str, value: object) -> None:
    with pytest.raises(ValidationError) as error:
        VmsSpec.model_validate({"kind": "vms", key: value})
    assert error.value.errors()[0]["loc"][0] == key


def test_a_meta_package_stands_for_the_kernel_that_it_depends_on() -> None:
    depends = "linux-image-amd64\n  Depends: linux-image-6.1.0-56-amd64\n"
    assert kernel.concrete("linux-image-amd64", depends) == "linux-image-6.1.0-56-amd64"
    assert kernel.concrete("linux-image-6.1.0-56-amd64", "x\n  Depends: kmod\n") == "linux-image-6.1.0-56-amd64"


def test_no_qemu_is_one_line_with_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterError, match="install the package qemu-system-x86"):
        find_program()


def test_no_taps_is_one_line_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="tun is missing; modprobe tun"):
        check_taps(tmp_path / "tun")
    with pytest.raises(ClusterError, match="Is a directory; let this user open it"):
        check_taps(tmp_path)


def test_what_a_killed_preparation_has_left_is_cleaned_and_what_is_being_made_is_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert kernel.clean() == [], "nothing was ever prepared"
    part = kernel.cache() / "debian-bullseye-x.part"
    (part / "root").mkdir(parents=True)
    fd = os.open(kernel.cache(), os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        assert kernel.clean() == [] and part.exists()
    finally:
        os.close(fd)
    assert kernel.clean() == ["debian-bullseye-x.part, half made"]
    assert list(kernel.cache().iterdir()) == []


def test_no_room_for_a_kernel_is_told_before_anything_is_fetched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(kernel, "ROOM_BYTES", 1 << 60)
    with pytest.raises(ClusterError, match="are free; make room, or set XDG_CACHE_HOME"):
        kernel.prepared("linux-image-amd64", print)
    assert list(kernel.cache().iterdir()) == []


def test_a_kernel_without_what_guests_need_is_refused(unpacked: Kernel) -> None:
    builtin = unpacked.modules / "modules.builtin"
    builtin.write_text("kernel/drivers/virtio/virtio_pci.ko\nkernel/fs/overlayfs/overlay.ko\n")
    with pytest.raises(ClusterError, match=r"linux-image-amd64 \(6.1.0\) has no virtio_net, 9pnet_virtio, rdma_rxe;"):
        check_kernel(unpacked, VmsSpec(rdma="rxe"))
    builtin.write_text(builtin.read_text() + "net/9p/9pnet_virtio.ko\ndrivers/net/virtio_net.ko\n")
    check_kernel(unpacked, VmsSpec())


@pytest.fixture
def kvm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A cache of the test's own, and /dev/kvm, which has to be there for KVM to be tried."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kernel.cache().mkdir(parents=True)
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        pytest.skip("there is no /dev/kvm")


def stand_in(tmp_path: Path, script: str) -> str:
    """A program that takes QEMU's arguments and does what `script` says."""
    path = tmp_path / "qemu"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_a_kvm_that_boots_is_used_and_asked_once(kvm: None, unpacked: Kernel, tmp_path: Path) -> None:
    program = stand_in(tmp_path, f"echo x >> {tmp_path}/asked; echo 'r2ccl: booted'")
    assert [accelerator.choose("auto", program, unpacked) for _ in range(2)] == ["kvm", "kvm"]
    assert (tmp_path / "asked").read_text() == "x\n"


@pytest.mark.parametrize(
    ("script", "why"),
    [("sleep 60", "a guest stands still"), ("echo no MSR >&2; exit 1", "no MSR"), ("exit 0", "ends before its first")],
)
def test_a_kvm_that_hangs_or_fails_counts_as_none(
    kvm: None, unpacked: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, why: str
) -> None:
    monkeypatch.setattr(accelerator, "TRY_S", 2.0)
    program = stand_in(tmp_path, f"exec {script}" if script.startswith("sleep") else script)
    assert accelerator.choose("auto", program, unpacked) == "tcg"
    with pytest.raises(ClusterError, match=why):
        accelerator.choose("kvm", program, unpacked)


# One cluster for real --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def _real() -> None:
    """Skips where guests cannot run."""
    guests.needed()


@pytest.fixture(scope="module")
def cluster(_real: None) -> Iterator[VmsCluster]:
    """Two guests in some ten seconds, without `-m vms`; nothing is fetched for them."""
    if not (kernel.cache() / "linux-image-amd64").is_dir():
        pytest.skip("no kernel for guests yet: harness cluster prepare experiments/kernels.toml")
    with VmsCluster(VmsSpec(name="test", hosts=2, nics=2, rdma="rxe")) as made:
        yield made


@pytest.mark.timeout(600)
def test_guests_have_kernels_of_their_own_and_reach_each_other(cluster: VmsCluster) -> None:
    first, second = cluster.hosts
    boots = {host.run(["cat", "/proc/sys/kernel/random/boot_id"]).stdout for host in cluster.hosts}
    assert len(boots) == 2
    assert first.run(["uname", "-r"]).stdout != os.uname().release
    for nic in second.nics:
        first.run(["/run/guest/ping", "-c", "1", "-W", "20", "-I", f"eth{nic.rail}", nic.address])
    assert "tbf 2:" in first.run(["tc", "qdisc", "show", "dev", "eth0"]).stdout
    assert first.run(["rdma", "link", "show"]).stdout.count("state ACTIVE") == 2


@pytest.mark.timeout(600)
def test_the_code_in_the_guest_is_this_checkouts(cluster: VmsCluster) -> None:
    said = cluster.hosts[0].run([sys.executable, "-c", "import faults; print(faults.__file__)"], timeout_s=300).stdout
    assert Path(said.strip()).is_relative_to(REPOSITORY)


OWNER = """
import sys
from harness.cluster.spec import VmsSpec
from harness.cluster.vms.cluster import VmsCluster
cluster = VmsCluster(VmsSpec(name="doomed", hosts=1, nics=1))
cluster.up()
print(cluster.tag, flush=True)
sys.stdin.read()
"""


@pytest.mark.vms
@pytest.mark.timeout(600)
def test_kill_9_leaves_no_guest_running_and_clean_removes_the_rest(_real: None) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
    ) as owner:
        assert owner.stdout is not None
        tag = owner.stdout.readline().strip()
        record = state.read(tag)
        assert record is not None
        assert any("qemu" in Path(f"/proc/{p.pid}/exe").readlink().name for p in record.processes)
        os.kill(owner.pid, signal.SIGKILL)
    deadline = time.monotonic() + 60
    while any(map(processes.alive, record.processes)):
        assert time.monotonic() < deadline, "guests outlive the harness"
        time.sleep(0.05)
    assert any("doomed" in line for line in clean())
    assert tag not in state.tags()
    assert f"r2m{tag}" not in netlink.uplinks()


DOOMED = """
schema = 1
name = "doomed"
cluster = {kind = "vms", name = "doomed", hosts = 2, nics = 2, rate = "20 Mbit/s", disk = "64MiB"}
workload = {backend = "noop", sizes = ["4MiB"], iterations = 30}
system = [{name = "balance", mode = 2}]
fault = [{kind = "cable_pull", host = "host1", rail = 1, at_iteration = 3}]
sweep = {repeats = 1, retries = 9, limits = {ready = "30 s", trial = "240 s"}}
"""


@pytest.mark.vms
@pytest.mark.timeout(900)
def test_kill_9_in_mid_trial_leaves_nothing_that_clean_does_not_find(_real: None, tmp_path: Path) -> None:
    """While a cable is pulled: guests, and all that was done to them, end with the harness; files, taps and the switch
    are clean's."""
    experiment = tmp_path / "doomed.toml"
    experiment.write_text(DOOMED)
    words = ["sweep", str(experiment), "--out", str(tmp_path / "runs"), "--json"]
    command = [sys.executable, "-c", "from harness.commands.cli import main; main()", *words]
    before = set(state.tags())
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY) as sweep:
        assert sweep.stdout is not None
        told = next((line for line in sweep.stdout if json.loads(line)["event"] == "fault"), None)
        assert told is not None, "the sweep ended before its fault"
        sweep.kill()
    (record,) = (made for tag in set(state.tags()) - before if (made := state.read(tag)) and made.name == "doomed")
    deadline = time.monotonic() + 60
    while any(map(processes.alive, record.processes)):
        assert time.monotonic() < deadline, "guests outlive the harness"
        time.sleep(0.05)
    assert (state.directory(record.tag) / "host1.disk").exists()
    assert any(record.tag in line for line in clean())
    assert record.tag not in state.tags() and not state.directory(record.tag).exists()
    assert f"r2m{record.tag}" not in netlink.uplinks()
    assert not [name for name in namespaces.names() if record.tag in name], "taps lie in the switch's namespace"


@pytest.mark.vms
@pytest.mark.timeout(600)
def test_a_guest_that_does_not_come_up_is_told_by_its_consoles_last_lines(
    _real: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "KERNEL_WORDS", (*machine.KERNEL_WORDS, "rdinit=/nowhere", "root=/dev/nothing"))
    cluster = VmsCluster(VmsSpec(name="lame", hosts=1, nics=1, accelerator="tcg"))
    cluster.start_s = 30.0
    with pytest.raises(ClusterError) as caught:
        cluster.up()
    assert "the vms cluster does not come up: host0: the guest does not come up; it said last: " in str(caught.value)
    assert "Kernel panic" in str(caught.value) and "\n" not in str(caught.value)
    assert not any("lame" in line for line in clean()), "nothing is left"
