"""Makes the modules beside the tests importable: test folders are no packages and on no path. Keeps workers apart."""

import importlib.util
import os
import signal
import sys
from pathlib import Path

import pytest


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One more than processors, as tests wait for timers and networks, too; none where guests' kernels may have to be
    downloaded, since a worker has no way to the Internet."""
    return 0 if "vms" in (config.option.markexpr or "") else min(12, 1 + len(os.sched_getaffinity(0)))


def pytest_configure(config: pytest.Config) -> None:
    """Before anything is made in /tmp or listens."""
    config.pluginmanager.register(sys.modules["workers"], "workers")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that boot virtual machines run where they are asked for; elsewhere they say how."""
    if "vms" not in (config.option.markexpr or ""):
        for item in items:
            if item.get_closest_marker("vms"):
                item.add_marker(pytest.mark.skip("boots virtual machines; ask for it: pytest -m vms"))


# A background job of a shell ignores SIGINT, and so would all that the tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Readline, which pytest loads, tells C's environment how wide the terminal is, and so every program that tests start.
for name in ("COLUMNS", "LINES"):
    os.environ.pop(name, None)
    os.unsetenv(name)

for name, folder in (
    ("synthetic_run", "reports"),
    ("served_run", "reports"),
    ("chromium_page", "reports"),
    ("workers", ""),
    ("guests", ""),
):
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).parent / folder / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
