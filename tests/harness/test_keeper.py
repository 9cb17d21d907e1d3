"""The keeper ends in silence if the harness is stopped before it has told what to start."""

import subprocess
import sys

import pytest

from harness.cluster import keeper


@pytest.mark.parametrize("told", [b"", b'[{"host": "ho'])
def test_a_harness_that_is_stopped_while_it_tells_leaves_no_traceback(told: bytes) -> None:
    done = subprocess.run([sys.executable, "-I", "-S", keeper.__file__], input=told, capture_output=True, timeout=20)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
