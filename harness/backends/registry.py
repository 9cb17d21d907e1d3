"""Every backend by its name in experiments."""

from harness.backends.base import Backend
from harness.backends.noop import NoopBackend
from harness.backends.perf import PerfBackend

BACKENDS: dict[str, Backend] = {"perf": PerfBackend(), "noop": NoopBackend()}
