"""The GPUs of this machine, and how several ranks share one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

CONTROL = "nvidia-cuda-mps-control"


def gpus_here() -> int:
    """How many GPUs this machine has."""
    if not shutil.which("nvidia-smi"):
        return 0
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False).stdout
    return sum(line.startswith("GPU ") for line in listed.splitlines())


class Service:
    """The Multi-Process Service, which lets kernels of several processes run side by side on one GPU.

    Without it they take turns by milliseconds, and collectives, whose kernels wait for each other, by many of them.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env: dict[str, str] = {}
        """What its clients need; empty while it does not run."""

    def start(self) -> str:
        """How ranks share a GPU from now on: ``side by side``, or ``by turns`` where the service does not work."""
        if shutil.which(CONTROL):
            env = {f"CUDA_MPS_{kind}_DIRECTORY": str(self.folder / f"mps-{kind.lower()}") for kind in ("PIPE", "LOG")}
            for folder in env.values():
                Path(folder).mkdir()
            if subprocess.run([CONTROL, "-d"], env={**os.environ, **env}, check=False).returncode == 0:
                self.env = env
                if not _has_cuda({**os.environ, **env}):
                    self.stop()
        return "side by side" if self.env else "by turns"

    def stop(self) -> None:
        """Ends it, once its clients have ended; harmless when it does not run."""
        if self.env:
            env = {**os.environ, **self.env}
            subprocess.run([CONTROL], input=b"quit\n", env=env, timeout=20, check=False)
            self.env = {}


def _has_cuda(env: Mapping[str, str]) -> bool:
    """Whether a process with this environment can use the GPU."""
    argv = [sys.executable, "-c", "import torch; torch.zeros(1, device='cuda')"]
    try:
        return subprocess.run(argv, env=env, timeout=40, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False
