"""The net plugin as NCCL meets it: loaded by a plain C program, driven through every version of its table.

No GPU and no NCCL; loopback only.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from plugin_build import MARKS, SANITIZED, SANITIZER_OPTIONS, build_plugin, build_program, must, run

DRIVER = ("plugin_driver.c", "plugin_peer.c", "plugin_tables.c")
VERSIONS = (8, 9, 10, 11, 12)
WRONG_DATA = 3

pytestmark = MARKS


@pytest.fixture(scope="module")
def plugin() -> Path:
    return build_plugin("plain")


@pytest.fixture(scope="module")
def driver() -> Path:
    return build_program("plain", *DRIVER)


def striped(stripes: int) -> dict[str, str]:
    """What makes a connection of several of ours, whose messages take turns as soon as they may."""
    return {"R2CC_STRIPES": str(stripes), "R2CC_FAST_MBIT_S": "0", "R2CC_CHUNK_BYTES": "4096"}


def drive(
    driver: Path, plugin: Path, *arguments: str | int, extra: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    env = {**(extra or {}), "R2CC_SOCKET_IFNAME": "=lo", **SANITIZER_OPTIONS}
    return run(driver, plugin, *(str(a) for a in arguments), env=env)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_table_keeps_the_contract(driver: Path, plugin: Path, version: int) -> None:
    done = drive(driver, plugin, version)
    assert done.returncode == 0, done.stdout


def test_nccl_names_of_variables_work(driver: Path, plugin: Path) -> None:
    done = run(driver, plugin, "11", env={"R2CC_SOCKET_IFNAME": "", "NCCL_SOCKET_IFNAME": "=lo"})
    assert done.returncode == 0, done.stdout


def test_a_changed_byte_is_seen(driver: Path, plugin: Path) -> None:
    done = drive(driver, plugin, 11, "--corrupt")
    assert done.returncode == WRONG_DATA, done.stdout
    assert "byte 524288 is" in done.stdout


def test_a_rank_that_crashes_fails_its_peer(driver: Path, plugin: Path) -> None:
    """In bounded time: the driver ends with another code where a request hangs."""
    env = {"R2CC_SOCKET_IFNAME": "=lo", "R2CC_FAILOVER_GIVE_UP_MS": "600000"}  # not the limit that ends it
    done = run(driver, plugin, "11", "--die", env=env)
    assert done.returncode == 0, done.stdout


def test_connections_that_nobody_asks_for_any_more_are_dropped(driver: Path, plugin: Path) -> None:
    env = {"R2CC_SOCKET_IFNAME": "=lo", "R2CC_FAILOVER_GIVE_UP_MS": "200"}
    done = run(driver, plugin, "12", "--abandon", env=env)
    assert done.returncode == 0, done.stdout


def test_status_files_come_and_go_with_the_processes(driver: Path, plugin: Path, tmp_path: Path) -> None:
    """Of the two, the one that ends without a word leaves its file behind, with what it last knew."""
    env = {"R2CC_SOCKET_IFNAME": "=lo", "R2CC_STATUS_DIR": str(tmp_path)}
    assert run(driver, plugin, "11", env=env).returncode == 0
    assert list(tmp_path.iterdir()) == []
    assert run(driver, plugin, "11", "--die", env=env).returncode == 0
    (left,) = tmp_path.glob("*.json")
    told = json.loads(left.read_text())
    assert (told["process"]["program"], told["nics"][0]["name"]) == ("plugin_driver", "lo")
    assert told["nics"][0]["received_bytes"] > 0


def test_a_status_folder_that_cannot_be_written_is_a_warning(driver: Path, plugin: Path) -> None:
    env = {"R2CC_SOCKET_IFNAME": "=lo", "R2CC_STATUS_DIR": "/proc/nowhere"}
    done = run(driver, plugin, "8", "--verbose", env=env)
    assert done.returncode == 0, done.stdout
    assert "R2CC_STATUS_DIR: cannot write /proc/nowhere" in done.stdout


def test_no_usable_nic_is_one_line_that_nccl_prints(driver: Path, plugin: Path) -> None:
    done = run(driver, plugin, "11", "--verbose", env={"R2CC_SOCKET_IFNAME": "no-such-nic"})
    assert done.returncode == 1
    assert "no interface with an IPv4 address matches 'no-such-nic'; set R2CC_SOCKET_IFNAME" in done.stdout


def test_a_wrong_parameter_is_one_line_that_nccl_prints(driver: Path, plugin: Path) -> None:
    done = run(driver, plugin, "8", "--verbose", env={"R2CC_SOCKET_IFNAME": "=lo", "R2CC_CHUNK_BYTES": "1"})
    assert done.returncode == 1
    assert "R2CC_CHUNK_BYTES=1: give a whole number from 4096 to 67108864" in done.stdout


def test_mode_3_is_mode_2_to_the_plugin(driver: Path, plugin: Path) -> None:
    done = run(driver, plugin, "10", "--verbose", env={"R2CC_SOCKET_IFNAME": "=lo", "R2CC_MODE": "3"})
    assert done.returncode == 0, done.stdout
    assert "NET/r2ccl : mode 2, NICs lo:127.0.0.1" in done.stdout


@pytest.mark.parametrize(("stripes", "eager"), [(1, "0"), (2, "0"), (2, "1048576"), (16, "1048576")])
def test_stripes_keep_the_contract_too(driver: Path, plugin: Path, stripes: int, eager: str) -> None:
    done = drive(driver, plugin, 12, extra={**striped(stripes), "R2CC_EAGER_BYTES": eager})
    assert done.returncode == 0, done.stdout


def test_a_rank_that_crashes_fails_all_stripes(driver: Path, plugin: Path) -> None:
    done = drive(driver, plugin, 12, "--die", extra={**striped(3), "R2CC_FAILOVER_GIVE_UP_MS": "600000"})
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("mode", [0, 1])
def test_the_other_modes_keep_the_contract_too(driver: Path, plugin: Path, mode: int) -> None:
    done = run(driver, plugin, "12", env={"R2CC_SOCKET_IFNAME": "=lo", "R2CC_MODE": str(mode)})
    assert done.returncode == 0, done.stdout


def test_the_driver_says_how_it_is_used(driver: Path, plugin: Path) -> None:
    done = run(driver, plugin, "7")
    assert done.returncode == 2
    assert done.stdout.startswith("usage: ")


@pytest.mark.skipif(shutil.which("nm") is None, reason="nm is missing (on Debian: apt install binutils)")
def test_nothing_but_the_tables_and_one_question_is_exported(plugin: Path) -> None:
    """Not even a unique symbol of the C++ library, which would be shared with NCCL's own."""
    lines = must("nm", "-D", "--defined-only", plugin).splitlines()
    kind_and_name = {(kind, name) for _, kind, name in (line.split() for line in lines)}
    tables = {("D", f"ncclNetPlugin_v{version}") for version in VERSIONS}
    assert kind_and_name == {*tables, ("T", "r2cclNicsLeft")}


@pytest.mark.skipif(shutil.which("readelf") is None, reason="readelf is missing (on Debian: apt install binutils)")
def test_the_plugin_brings_its_c_plus_plus_library_along(plugin: Path) -> None:
    """It must load beside whatever C++ library a framework ships; and it stays loaded, as its threads run on."""
    dynamic = must("readelf", "-d", "-W", plugin)
    assert "libstdc++" not in dynamic
    assert "NODELETE" in dynamic


@pytest.mark.parametrize("flavour", SANITIZED)
def test_the_contract_holds_under_a_sanitizer(flavour: str) -> None:
    plugin, driver = build_plugin(flavour), build_program(flavour, *DRIVER)
    for version, extra in ((8, {}), (12, striped(2))):
        done = drive(driver, plugin, version, extra=extra)
        assert done.returncode == 0, done.stdout
