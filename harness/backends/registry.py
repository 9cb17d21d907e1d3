"""Every backend by its name in experiments."""

from harness.backends.base import Backend
from harness.backends.nccl_tests import NcclTestsBackend
from harness.backends.noop import NoopBackend
from harness.backends.perf import PerfBackend
from harness.backends.perftest import PerftestBackend
from harness.backends.serving.backend import ServingBackend
from harness.backends.simulate import SimulateBackend
from harness.backends.torch import TorchBackend
from harness.backends.training import TrainingBackend
from harness.workloads.base import BackendName

BACKENDS: dict[BackendName, Backend] = {
    "perf": PerfBackend(),
    "simulate": SimulateBackend(),
    "noop": NoopBackend(),
    "nccl_tests": NcclTestsBackend(),
    "perftest": PerftestBackend(),
    "torch_gloo": TorchBackend("gloo"),
    "torch_nccl": TorchBackend("nccl"),
    "torch_r2ccl": TorchBackend("r2ccl"),
    "train_r2ccl": TrainingBackend("r2ccl"),
    "train_gloo": TrainingBackend("gloo"),
    "train_nccl": TrainingBackend("nccl"),
    "train_mixed": TrainingBackend("cpu:r2ccl,cuda:nccl"),
    "train_torchft": TrainingBackend("torchft"),
    "serve_r2ccl": ServingBackend(),
}
