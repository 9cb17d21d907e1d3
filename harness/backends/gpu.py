"""Whether a rank has a GPU, which processes may share by the Multi-Process Service."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

_MPS_S = 20.0


def finds_a_gpu(torch: Any) -> bool:
    """Whether PyTorch can use one. The Multi-Process Service starts again after a client of it was killed, and refuses
    others meanwhile (error 807, or a device that is busy); a process that was refused once is refused for good, so
    others find out."""
    look = [sys.executable, "-c", "import torch; [torch.zeros(1, device=i) for i in range(torch.cuda.device_count())]"]
    if not Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")).exists():
        return bool(torch.cuda.is_available())
    end = time.monotonic() + _MPS_S
    while subprocess.run(look, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode:
        if time.monotonic() > end:
            return False
        time.sleep(0.5)
    return bool(torch.cuda.is_available())
