"""GPU memory through the net plugin, without a GPU: NCCL's pointers are addresses that the processor cannot touch.

Here no NIC has RDMA, so everything goes by the mapping of GDRCopy, whose place a stand-in takes. RDMA from and into
such memory is in test_verbs_vms.py and in native/tests/verbs_stream_test.cc.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from gpu_stand_in import build_stand_in
from plugin_build import MARKS, SANITIZER_OPTIONS, build_plugin, run

from harness.cluster import rights

VERSIONS = (8, 9, 10, 11, 12)
WRONG_DATA, CRASH = 3, 5
# A host with an RDMA device, which none of its NICs has: in a file system of its own.
WITH_A_DEVICE = """
sysfs=$0 && mkdir -p $sysfs/infiniband/absent0 $sysfs/net &&
mount --bind /sys/class/net $sysfs/net && mount --rbind $sysfs /sys/class && exec "$@"
"""

pytestmark = [
    *MARKS,
    pytest.mark.skipif(not rights.have(), reason="needs the right to make namespaces"),
]


def drive(
    sysfs: Path, flavour: str, *words: str | int, **more: str
) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """What the program did, and the lines of the plugin's log about R2CC_GDR."""
    program, env = build_stand_in(flavour)
    env |= {"R2CC_TRANSPORT": "auto", "R2CC_SOCKET_IFNAME": "=lo", **SANITIZER_OPTIONS, **more}
    command = (program, build_plugin(flavour), *map(str, words))
    done = run("unshare", "-m", "sh", "-c", WITH_A_DEVICE, sysfs, *command, env=env)
    return done, [line for line in done.stdout.splitlines() if "R2CC_GDR" in line]


@pytest.mark.parametrize("words", [(version,) for version in VERSIONS] + [(version, "--dmabuf") for version in (8, 12)])
def test_gpu_memory_goes_over_tcp_without_being_touched_by_its_address(tmp_path: Path, words: tuple[object]) -> None:
    done, said = drive(tmp_path, "plain", *words)  # type: ignore[arg-type]
    assert done.returncode == 0, done.stdout
    assert "side 0: pointers 3" in done.stdout
    assert "side 0: 12 rounds, 0 flushed by a device" in done.stdout
    assert any("this was not tried on hardware" in line for line in said)


def test_memory_that_is_not_translated_crashes_this_test(tmp_path: Path) -> None:
    """The negative control: the device's address, registered as the host's."""
    done, _ = drive(tmp_path, "plain", 12, "--as-host")
    assert done.returncode == CRASH, done.stdout


def test_a_changed_byte_is_seen(tmp_path: Path) -> None:
    done, _ = drive(tmp_path, "plain", 12, "--corrupt")
    assert done.returncode == WRONG_DATA, done.stdout
    assert "byte 131072 is" in done.stdout


MISSING = {
    "R2CC_TRANSPORT is tcp; set it to auto or verbs": {"R2CC_TRANSPORT": "tcp"},
    "GDRCopy's library cannot be opened: libgdrapi.so.2: cannot open shared object file": {"LD_LIBRARY_PATH": ""},
    "GDRCopy's device cannot be opened; is its driver loaded (gdrdrv), and /dev/gdrdrv there?": {
        "STAND_IN_NO_DEVICE": "1"
    },
    "NCCL_IB_DISABLE=1; unset it": {"NCCL_IB_DISABLE": "1"},
}


@pytest.mark.parametrize("reason", MISSING)
def test_without_what_it_needs_memory_is_the_hosts_and_one_line_says_why(tmp_path: Path, reason: str) -> None:
    done, said = drive(tmp_path, "plain", 12, **MISSING[reason])
    # The side that is the first to find it out ends the other.
    sides = [line.partition(":")[0] for line in said]
    assert len(sides) == len(set(sides)) > 0, done.stdout
    assert all(reason in line and "GPU memory goes through host memory" in line for line in said)
    assert "pointers 1" in done.stdout


def test_another_value_of_the_variable_is_refused(tmp_path: Path) -> None:
    done, said = drive(tmp_path, "plain", 12, "--as-host", R2CC_GDR="2")
    assert done.returncode != 0
    assert any("R2CC_GDR=2: give a whole number from 0 to 1" in line for line in said)


@pytest.mark.long
@pytest.mark.parametrize("flavour", ["address", "thread"])
def test_gpu_memory_under_a_sanitizer(tmp_path: Path, flavour: str) -> None:
    for words in ((8,), (12, "--dmabuf")):
        done, _ = drive(tmp_path, flavour, *words)
        assert done.returncode == 0, done.stdout
