"""What is kept of a failed launcher's words; the texts are those of Open MPI 4.1.4 and MPICH 4.0.2."""

import pytest

from harness.backends.said import MOST_CHARACTERS, last_words, out_of_memory, telling

RULE = "-" * 74

NO_KEYS = f"""
Host key verification failed.
{RULE}
ORTE was unable to reliably start one or more daemons.
This usually is caused by:

* not finding the required libraries and/or binaries on
  one or more nodes. Please check your PATH and LD_LIBRARY_PATH
{RULE}
"""
NO_PROGRAM = f"""2 total processes failed to start

{RULE}
mpirun was unable to launch the specified application as it could not access
or execute an executable:

Executable: /opt/build/all_reduce_perf
Node: host0

while attempting to start process rank 0.
{RULE}
"""
ABORTED = f"""{RULE}
MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD
with errorcode 3.

NOTE: invoking MPI_ABORT causes Open MPI to kill all MPI processes.
{RULE}
[host0:15786] 1 more process has sent help message help-mpi-api.txt / mpi-abort
[host0:15786] Set MCA parameter "orte_base_help_aggregate" to 0 to see all help / error messages
"""
KILLED = f"""all_reduce_perf: the GPU has fallen off the bus
{RULE}
Primary job  terminated normally, but 1 process returned
a non-zero exit code. Per user-direction, the job has been aborted.
{RULE}
{RULE}
mpirun noticed that process rank 1 with PID 14394 on node 198.18.0.2 exited on signal 9 (Killed).
{RULE}
"""


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (NO_KEYS, "Host key verification failed.; ORTE was unable to reliably start one or more daemons."),
        (
            NO_PROGRAM,
            "2 total processes failed to start; mpirun was unable to launch the specified application as it could not "
            "access or execute an executable: Executable: /opt/build/all_reduce_perf Node: host0 while attempting to "
            "start process rank 0.",
        ),
        (ABORTED, "MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD with errorcode 3."),
        (
            KILLED,
            "all_reduce_perf: the GPU has fallen off the bus; "
            "mpirun noticed that process rank 1 with PID 14394 on node 198.18.0.2 exited on signal 9 (Killed).",
        ),
        (
            f"[host0:06824] [[21217,0],0] ORTE_ERROR_LOG: Not found in file iof_hnp.c at line 318\n{KILLED}",
            "all_reduce_perf: the GPU has fallen off the bus; "
            "mpirun noticed that process rank 1 with PID 14394 on node 198.18.0.2 exited on signal 9 (Killed).",
        ),
        (
            "[host0:06824] [[21217,0],0] ORTE_ERROR_LOG: Not found in file iof_hnp.c at line 318",
            "[host0:06824] [[21217,0],0] ORTE_ERROR_LOG: Not found in file iof_hnp.c at line 318",
        ),
        (f"a warning\nsegmentation fault\nnothing more\n{RULE}\n", "segmentation fault"),
        (f"hello\n{RULE}\nbye\n", "hello"),
        (f"\n{RULE}\n{RULE}\n===\n", ""),
        ("", ""),
    ],
)
def test_what_says_something_is_kept(text: str, kept: str) -> None:
    assert telling(text.splitlines()) == kept


def test_a_line_without_end_is_cut() -> None:
    assert len(telling(["error " * 1000])) == MOST_CHARACTERS


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (
            RuntimeError(
                "[enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: can't allocate memory: you tried "
                "to allocate 4294967296 bytes. Error code 12 (Cannot allocate memory)"
            ),
            "4.0 GiB more",
        ),
        (
            RuntimeError("CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has"),
            "2.50 GiB more",
        ),
        (RuntimeError("std::bad_alloc"), "what it needs next"),
        (MemoryError(), "what it needs next"),
    ],
)
def test_an_allocation_that_failed_is_told_with_its_remedy(error: Exception, wanted: str) -> None:
    assert out_of_memory(error) == (f"out of memory: {wanted} cannot be had; choose a smaller model, batch or context")
    assert out_of_memory(RuntimeError("rank 1 is gone")) is None


def test_the_last_words_are_the_exception() -> None:
    # PyTorch 2.11 with CUDA 13.0, whose device was refused by the Multi-Process Service
    said = [
        "Traceback (most recent call last):",
        '  File "/opt/harness/backends/torch_rank.py", line 99, in __init__',
        "    self._memory = [torch.from_numpy(array).to(device) for array in self._host]",
        "                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
        "torch.AcceleratorError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",
        "Search for `cudaErrorDevicesUnavailable' in https://docs.nvidia.com/cuda/ for more information.",
        "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.",
        "",
    ]
    assert last_words(said) == said[4]
    assert last_words(["[rank1]: " + line for line in said]) == said[4]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["all is well", "Segmentation fault", " "], "Segmentation fault"),
        (
            [
                "terminate called after throwing an instance of 'c10::DistBackendError'",
                "  what():  timed out",
                "Aborted",
            ],
            "timed out",
        ),
        (["", " "], ""),
        ([], ""),
    ],
)
def test_without_a_traceback_the_last_words_are_those_of_c_or_the_last_line(lines: list[str], words: str) -> None:
    assert last_words(lines) == words
