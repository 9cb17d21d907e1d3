"""libplugin_R2CCL.so: by itself, and where NIXL's wheel is, in two and three hosts of two rails under failures.

The wheel takes 340 MB, so it is no dependency of the tests. With it:

    python -m venv NIXL && NIXL/bin/pip install --no-deps nixl-cu12==1.5.1 numpy
    R2CCL_NIXL_PYTHON=NIXL/bin/python .venv/bin/pytest tests/native/test_nixl.py
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from nixl_hosts import acquaint, agents, interpreter
from rails import Rails, rails

from harness.cluster import rights
from r2ccl_core import native

SIZE = 64 << 20
BLOCK = 64 << 10


class Plugin(ctypes.Structure):
    """The beginning of what `nixl_plugin_init` returns."""

    _fields_ = (
        ("api_version", ctypes.c_int),
        ("create", ctypes.c_void_p),
        ("destroy", ctypes.c_void_p),
        ("name", ctypes.CFUNCTYPE(ctypes.c_char_p)),
        ("version", ctypes.CFUNCTYPE(ctypes.c_char_p)),
    )


def test_the_plugin_says_what_it_is() -> None:
    library = ctypes.CDLL(str(native.nixl_plugin_path()))
    library.nixl_plugin_init.restype = ctypes.POINTER(Plugin)
    plugin = library.nixl_plugin_init().contents
    assert (plugin.api_version, plugin.name(), plugin.version()) == (1, b"R2CCL", b"0.1.0")


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("1.2.0", "this NIXL is 1.2.0; the R2CCL plugin needs one from 1.3 to 1.5 (api_version 1)"),
        ("2.0.0", "this NIXL is 2.0.0; the R2CCL plugin needs one from 1.3 to 1.5 (api_version 1)"),
        ("1.5.1", ""),
    ],
)
def test_a_nixl_of_another_layout_is_refused_in_one_line(tmp_path: Path, version: str, said: str) -> None:
    """What stands for its core is a library of that name where its wheel has it."""
    core = tmp_path / ".nixl_cu12.mesonpy.libs" / "libnixl.so"
    core.parent.mkdir()
    core.symlink_to(native.plugin_path())
    (tmp_path / f"nixl_cu12-{version}.dist-info").mkdir()
    (tmp_path / "nixl-0.1.dist-info").mkdir()  # another distribution's
    code = (
        "import ctypes, sys; ctypes.CDLL(sys.argv[1]); plugin = ctypes.CDLL(sys.argv[2]);"
        "plugin.nixl_plugin_init.restype = ctypes.c_void_p; print(plugin.nixl_plugin_init() is not None)"
    )
    argv = [sys.executable, "-c", code, core, native.nixl_plugin_path()]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(not said)
    assert done.stderr == (f"r2ccl: NIXL backend: {said}\n" if said else "")


with_the_wheel = [
    pytest.mark.netns,
    pytest.mark.slow,
    pytest.mark.skipif(not rights.have(), reason="needs the right to make network namespaces"),
    pytest.mark.skipif(interpreter() is None, reason="needs nixl-cu12, see the top of tests/native/test_nixl.py"),
]


@pytest.fixture(scope="module")
def network() -> Iterator[Rails]:
    with rails(2, 2) as made:
        yield made


class TestWithTheWheel:
    pytestmark = with_the_wheel

    def test_a_write_and_a_read_go_on_through_failures(self, network: Rails, tmp_path: Path) -> None:
        with agents(network, tmp_path, "R2CCL", SIZE) as (one, two):
            assert acquaint(one, two) == {"peer": "1"}
            for number, (op, fail, heal) in enumerate(
                (
                    ("WRITE", lambda: network.port(0, 1, "down"), lambda: network.port(0, 1, "up")),
                    ("READ", lambda: network.drop(1, 0), lambda: network.heal(1, 0)),
                )
            ):
                source, sink = (one, two) if op == "WRITE" else (two, one)
                source.call("fill", seed=number)
                sink.call("fill", seed=9)
                one.begin("1", two.about, BLOCK, 60, op)
                fail()
                assert one.answer()["state"] == "DONE", one.words()
                assert sink.call("wrong", seed=number)["wrong"] == 0
                assert two.call("notifications", timeout_s=10) == {"0": ["all is there"]}
                heal()
            sink.call("spoil")
            assert sink.call("wrong", seed=number)["wrong"] == 1  # the comparison sees a byte

    @pytest.mark.parametrize("black_hole", [False, True])
    def test_two_agents_write_to_a_third_that_loses_a_rail(self, tmp_path: Path, black_hole: bool) -> None:
        with rails(3, 2) as network, agents(network, tmp_path, "R2CCL", SIZE) as (one, target, other):
            for seed, writer in enumerate((one, other)):
                assert acquaint(writer, target) == {"peer": "1"}
                writer.call("fill", seed=7)
                target.call("fill", seed=seed)
            for writer in (one, other):
                writer.begin("1", target.about, BLOCK, 60)
            if black_hole:
                network.drop(1, 1)
            else:
                network.port(1, 1, "down")
            for writer in (one, other):
                assert writer.answer()["state"] == "DONE", writer.words()
            assert target.call("wrong", seed=7)["wrong"] == 0
            said: dict[str, list[str]] = {}
            while len(said) < 2:
                found = target.call("notifications", timeout_s=10)
                assert found, f"only {said} told the target"
                said |= found
            assert said == {"0": ["all is there"], "2": ["all is there"]}

    def test_a_rail_that_is_down_when_agents_connect_does_not_matter(self, network: Rails, tmp_path: Path) -> None:
        network.port(1, 1, "down")
        with agents(network, tmp_path, "R2CCL", SIZE) as (one, two):
            assert acquaint(one, two) == {"peer": "1"}
            one.call("fill", seed=1)
            one.begin("1", two.about, BLOCK, 60)
            assert one.answer()["state"] == "DONE", one.words()
            assert two.call("wrong", seed=1)["wrong"] == 0
        network.port(1, 1, "up")

    def test_memory_is_quiet_before_a_release_and_a_dead_agent_is_an_error(
        self, network: Rails, tmp_path: Path
    ) -> None:
        with agents(network, tmp_path, "R2CCL", SIZE) as (one, two):
            acquaint(one, two)
            one.begin("1", two.about, BLOCK, 0.0)
            assert one.answer()["state"] == "PROC"
            released = one.call("release")
            assert released["refused"] == 1
            two.call("fill", seed=3)
            assert two.call("wrong", seed=3)["wrong"] == 0  # nothing lands any more
            one.begin("1", two.about, BLOCK, 60)
            two.kill()
            ended = one.answer()
            assert "REMOTE_DISCONNECT" in str(ended) or ended.get("state") == "ERR", ended
            assert one.call("deregister")["seconds"] < 5
