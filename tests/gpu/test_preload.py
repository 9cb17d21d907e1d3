"""The preloaded library in front of a real NCCL, without a GPU: calls reach NCCL, and its errors come back as they are.

NCCL is the one of PyTorch's environment, or R2CCL_NCCL names it; the library is built where a CUDA compiler is.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
INVALID_ARGUMENT = 4
CALLER = """
#include <stddef.h>
#include <stdio.h>
extern int ncclAllReduce(const void*, void*, size_t, int, int, void*, void*);
extern int ncclGroupStart(void);
extern int ncclGroupEnd(void);
extern int ncclCommDestroy(void*);
int main(void) {
  char place[8] = {0};
  int none = ncclAllReduce(place, place, (size_t)1 << 22, 7, 0, NULL, NULL);
  int begun = ncclGroupStart();
  int in_group = ncclAllReduce(place, place, (size_t)1 << 22, 7, 0, NULL, NULL);
  ncclGroupEnd();
  printf("%d %d %d %d\\n", none, begun, in_group, ncclCommDestroy(NULL));
  return 0;
}
"""


def nccl() -> Path:
    named = os.environ.get("R2CCL_NCCL")
    if named:
        return Path(named)
    try:
        spec = importlib.util.find_spec("nvidia.nccl")
    except ModuleNotFoundError:
        spec = None
    places = [Path(place) / "lib/libnccl.so.2" for place in (spec.submodule_search_locations or [])] if spec else []
    found = next((place for place in places if place.exists()), None)
    if found is None:
        pytest.skip("no libnccl.so.2 (pip install nvidia-nccl-cu13, or R2CCL_NCCL=PATH)")
    return found


@pytest.fixture(scope="module")
def preload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library, from the package's build folders or built now."""
    built = sorted(ROOT.glob("build/*/libr2ccl-preload.so"), key=lambda path: path.stat().st_mtime)
    if built:
        return built[-1]
    if shutil.which("nvcc") is None:
        pytest.skip("no CUDA compiler: libr2ccl-preload.so is not built here")
    folder = tmp_path_factory.mktemp("preload")
    source = ROOT / "r2ccl_core/native"
    options = ("-DR2CCL_PYTHON=OFF", "-DR2CCL_CUDA=ON", "-DCMAKE_CUDA_ARCHITECTURES=90")
    subprocess.run(["cmake", "-S", source, "-B", folder, *options], check=True, capture_output=True)
    subprocess.run(["cmake", "--build", folder, "-j2", "--target", "r2ccl-preload"], check=True, capture_output=True)
    return folder / "libr2ccl-preload.so"


@pytest.mark.parametrize("table", ["", "/nowhere"])
def test_what_nccl_says_of_a_communicator_that_is_none_comes_back(preload: Path, tmp_path: Path, table: str) -> None:
    """With a table that cannot be read as well: then nothing is taken over, and NCCL answers."""
    library = nccl()
    (tmp_path / "caller.c").write_text(CALLER)
    program = tmp_path / "caller"
    link = ("-L", library.parent, "-l:libnccl.so.2", f"-Wl,-rpath,{library.parent}", "-Wl,--allow-shlib-undefined")
    subprocess.run(["cc", tmp_path / "caller.c", "-o", program, *link], check=True)

    def run(**env: str) -> str:
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("NCCL_", "R2CC_"))}
        done = subprocess.run([program], env={**clean, **env}, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()[-1]

    direct = run()
    assert direct.split()[0] == str(INVALID_ARGUMENT)
    assert run(LD_PRELOAD=str(preload), R2CC_SCHEDULES=table) == direct


def test_it_exports_what_it_stands_before_and_nothing_else(preload: Path) -> None:
    listed = subprocess.run(["nm", "-D", "--defined-only", preload], capture_output=True, text=True, check=True).stdout
    assert {line.split()[-1] for line in listed.splitlines()} == {
        *(
            "ncclAllReduce",
            "ncclGroupStart",
            "ncclGroupEnd",
            "ncclGroupSimulateEnd",
            "ncclCommDestroy",
            "ncclCommAbort",
        ),
        *("r2cclChoice", "r2cclSetNicsLeft"),
    }
