"""Communicators that come and go in one process, as each release of NCCL makes and ends them.

``plugin_life.c`` opens and closes the plugin as the release does (``nccl_loader.c``), checks every byte of every
message, and counts descriptors, threads and memory. No GPU and no NCCL.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from plugin_build import BUILDS, MARKS, PLUGIN, SANITIZED, SANITIZER_OPTIONS, build_plugin, build_program, must, run
from rails import Rails, rails

from harness.cluster import rights

LIFE = ("plugin_life.c", "nccl_loader.c", "plugin_peer.c", "plugin_tables.c")
RELEASES = ("2.20", "2.22", "2.25", "2.26", "2.27", "2.28", "2.29", "2.30")
CLOSES = {"2.22", "2.25", "2.28", "2.29", "2.30"}  # with their own settings
WRONG_DATA, LEAK, NO_PLUGIN = 3, 6, 7

pytestmark = MARKS


@pytest.fixture(scope="module")
def plugin() -> Path:
    return build_plugin("plain")


@pytest.fixture(scope="module")
def life(plugin: Path) -> Path:
    return build_program("plain", *LIFE)


def live(life: Path, plugin: Path | str, *arguments: str | int, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {"NCCL_NET_PLUGIN": str(plugin), "R2CC_SOCKET_IFNAME": "=lo", **SANITIZER_OPTIONS, **variables}
    return run(life, *map(str, arguments), env=env)


@pytest.mark.parametrize("release", RELEASES)
def test_communicators_come_and_go(life: Path, plugin: Path, release: str) -> None:
    rounds = 50 if release == "2.28" else 12
    done = live(life, plugin, release, "--rounds", rounds)
    assert done.returncode == 0, done.stdout
    assert f"closed {rounds if release in CLOSES else 0} times" in done.stdout


def test_a_release_that_forgets_by_request_finds_the_plugin_again(life: Path, plugin: Path) -> None:
    done = live(life, plugin, "2.27", "--rounds", 9, NCCL_NET_PLUGIN_REF_COUNT="0")
    assert done.returncode == 0, done.stdout
    assert "closed 9 times" in done.stdout


def test_the_plugin_is_found_again_by_whatever_name_it_came(life: Path, plugin: Path, tmp_path: Path) -> None:
    """By its short name, renamed, and as the default one."""
    renamed = shutil.copy(plugin, tmp_path / "other.so")
    shutil.copy(plugin, tmp_path / "libnccl-net.so")
    for name, folder in (("r2ccl", plugin.parent), (str(renamed), plugin.parent), ("", tmp_path)):
        done = live(life, name, "2.29", "--rounds", 3, LD_LIBRARY_PATH=str(folder))
        assert done.returncode == 0, done.stdout


@pytest.fixture(scope="module")
def nameless(plugin: Path) -> Path:
    """A plugin that cannot take the second name: something else is loaded under it before."""
    source = BUILDS / "plain" / "stranger.c"
    source.write_text("int r2ccl_tests_stranger;\n")
    stranger = BUILDS / "plain" / "stranger.so"
    must("gcc", "-shared", "-fPIC", "-Wl,-soname,libnccl-net.so", source, "-o", stranger)
    return stranger


def test_without_the_second_name_it_says_so_and_what_helps(life: Path, plugin: Path, nameless: Path) -> None:
    """The next communicator fails there, as it did everywhere; with the count of the remedy it does not."""
    done = live(life, plugin, "2.28", "--rounds", 3, "--verbose", LD_PRELOAD=str(nameless))
    assert done.returncode == NO_PLUGIN, done.stdout
    assert "another library is loaded as libnccl-net.so, so the next one would go without r2ccl" in done.stdout
    assert "communicator 1: Failed to initialize any NET plugin" in done.stdout
    remedy = {"LD_PRELOAD": str(nameless), "NCCL_NET_PLUGIN_REF_COUNT": "1"}
    done = live(life, plugin, "2.28", "--rounds", 3, **remedy)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("kind", ["descriptor", "thread", "memory"])
def test_a_leak_is_seen(life: Path, plugin: Path, kind: str) -> None:
    done = live(life, plugin, "2.28", "--rounds", 30, "--leak", kind)
    assert done.returncode == LEAK, done.stdout


def test_a_changed_byte_is_seen(life: Path, plugin: Path) -> None:
    done = live(life, plugin, "2.28", "--rounds", 4, "--corrupt")
    assert done.returncode == WRONG_DATA, done.stdout


@contextmanager
def failures(network: Rails) -> Iterator[list[str]]:
    """NICs of both hosts fail one after another and come back, now with and now without losing carrier."""
    told: list[str] = []
    over = threading.Event()

    def fail() -> None:
        while not over.is_set():
            for host, nic in ((0, 1), (1, 0), (0, 0), (1, 1)):
                network.port(host, nic, "down")
                time.sleep(0.15)
                network.port(host, nic, "up")
                time.sleep(0.3)
                network.drop(host, nic)
                time.sleep(0.2)
                network.heal(host, nic)
                time.sleep(0.3)
                told.append(f"{host}:{nic}")

    thread = threading.Thread(target=fail)
    thread.start()
    try:
        yield told
    finally:
        over.set()
        thread.join()


@pytest.mark.netns
@pytest.mark.skipif(not rights.have(), reason="needs the right to make network namespaces")
@pytest.mark.parametrize(("release", "rounds"), [("2.28", 50), ("2.30", 15)])
def test_communicators_come_and_go_while_nics_fail(
    life: Path, plugin: Path, release: str, rounds: int, tmp_path: Path
) -> None:
    with rails(2, 2) as network, failures(network) as told:
        places = (network.place(0), network.place(1))
        variables = {"R2CC_SOCKET_IFNAME": "eth", "R2CC_STATUS_DIR": str(tmp_path)}
        done = live(life, plugin, release, "--rounds", rounds, "--netns", *places, **variables)
    assert done.returncode == 0, done.stdout
    assert f"closed {rounds} times" in done.stdout
    assert len(told) > 2  # NICs, each lost twice


@pytest.mark.parametrize("flavour", SANITIZED)
def test_no_error_under_a_sanitizer(flavour: str) -> None:
    done = live(build_program(flavour, *LIFE), build_plugin(flavour), "2.28", "--rounds", 10)
    assert done.returncode == 0, done.stdout


@pytest.mark.skipif(shutil.which("readelf") is None, reason="readelf is missing (on Debian: apt install binutils)")
def test_the_plugin_has_the_name_that_the_empty_library_needs(plugin: Path) -> None:
    assert f"[{PLUGIN}]" in must("readelf", "-d", "-W", plugin)
    assert os.fspath(plugin).endswith(PLUGIN)
