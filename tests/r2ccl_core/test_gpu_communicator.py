"""What `GpuCommunicator` refuses before it needs PyTorch or a GPU."""

import sys

import pytest

from r2ccl_core.errors import UsageError
from r2ccl_core.gpu.communicator import GpuCommunicator

ROOT = "127.0.0.1:7000"


@pytest.mark.parametrize(
    ("rank", "size", "root", "words"),
    [
        (2, 2, ROOT, "R2CC_RANK=2: ranks go from 0 to 1, as R2CC_SIZE=2 says"),
        (-1, 2, ROOT, "R2CC_RANK=-1: ranks go"),
        (0, 0, ROOT, "R2CC_SIZE=0: give 1 to"),
        (0, 1 << 40, ROOT, "R2CC_SIZE=1099511627776: give 1 to"),
        (0, 2, "127.0.0.1", "write it as host:port"),
        (0, 2, "127.0.0.1:", "write it as host:port"),
        (0, 2, "127.0.0.1:0", "write it as host:port"),
        (0, 2, "127.0.0.1:65536", "write it as host:port"),
        (0, 2, "127.0.0.1:\u00b2", "write it as host:port"),
        (0, 2, ":7000", "write it as host:port"),
        (0, 2, "", "write it as host:port"),
    ],
)
def test_a_wrong_place_is_one_line(
    monkeypatch: pytest.MonkeyPatch, rank: int, size: int, root: str, words: str
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # to import it is an error
    with pytest.raises(UsageError, match=words) as caught:
        GpuCommunicator(rank, size, root)
    assert "\n" not in str(caught.value)
