"""Makes the modules beside the tests importable, as test folders are no packages and on no path; isolates workers."""

import gc
import os
import signal
import sys
from pathlib import Path
from runpy import run_path

import pytest
from hypothesis import settings

from harness.commands.start import ALLOCATIONS

settings.register_profile("any machine", deadline=None)  # how long an example takes depends on what else runs
settings.load_profile("any machine")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two more than there are processors, since tests also wait for timers and networks. None for tests of virtual
    machines: guests' kernels may have to be downloaded, and a worker has no access to the Internet."""
    return 0 if "vms" in (config.option.markexpr or "") else min(12, 2 + len(os.sched_getaffinity(0)))


def pytest_configure(config: pytest.Config) -> None:
    """Registers the worker plugin before any test writes to /tmp or listens."""
    config.pluginmanager.register(sys.modules["workers"], "workers")


ON_REQUEST = {
    "vms": "boots virtual machines; ask for it: pytest -m vms",
    "long": "proves more of the same for minutes; ask for it: pytest -m long",
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skips what runs only on request, and says how to request it."""
    for mark, why in ON_REQUEST.items():
        if mark not in (config.option.markexpr or ""):
            for item in items:
                if item.get_closest_marker(mark):
                    item.add_marker(pytest.mark.skip(why))


def pytest_collection_finish() -> None:
    """What pytest holds for thousands of tests is no garbage, and need not be searched for some each time."""
    gc.freeze()
    gc.set_threshold(ALLOCATIONS)


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports have no figures, whose drawing takes three quarters of their time: for tests of what else they say."""
    from reports import report

    whole = report.content
    monkeypatch.setattr(report, "content", lambda runs, frame, lines, figures=None: whole(runs, frame, lines))


# A shell's background job ignores SIGINT, and so would every program that the tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Readline, which pytest loads, sets the terminal's width in C's environment, and programs that tests start inherit it.
for name in ("COLUMNS", "LINES"):
    os.environ.pop(name, None)
    os.unsetenv(name)

importable = run_path(str(Path(__file__).with_name("scripts.py")))["importable"]
for name, folder in (
    ("scripts", ""),
    ("conditions", ""),
    ("synthetic_run", "reports"),
    ("served_trials", "reports"),
    ("served_run", "reports"),
    ("chromium_page", "reports"),
    ("workers", ""),
    ("guests", ""),
    ("forked", ""),
    ("torch_ranks", ""),
):
    importable(Path(__file__).parent / folder / f"{name}.py")
