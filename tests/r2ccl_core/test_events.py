"""Events of a rank keep a stream of their own, whatever its libraries write."""

import json
import subprocess
import sys

PROGRAM = """
import ctypes
from r2ccl_core.perf.events import Events, own_stream
events = Events(3, True, own_stream())
libc = ctypes.CDLL(None)
libc.printf(b"NCCL INFO Channel 07/0 : 1[0] -> 2[0]")  # and the rest of the line later
libc.fflush(None)
events.emit("ready")
libc.printf(b" [send] via NET/r2ccl/3\\n")
libc.fflush(None)
print("and Python's own")
events.emit("done")
"""


def test_half_a_line_of_a_library_does_not_swallow_an_event() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert [json.loads(line)["event"] for line in done.stdout.splitlines()] == ["ready", "done"]
    assert "1[0] -> 2[0] [send] via NET/r2ccl/3\n" in done.stderr and "and Python's own\n" in done.stderr
