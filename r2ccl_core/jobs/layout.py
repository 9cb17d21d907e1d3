"""How a job is cut over GPUs: tensor, pipeline, data and expert parallelism, and where their groups lie.

Ranks are numbered as in Megatron: tensor fastest, then data, then pipeline. So a tensor group of up to a host's GPUs
lies inside a host, and the data-parallel groups of one pipeline stage lie on the hosts of that stage.
"""

from dataclasses import dataclass

from r2ccl_core.errors import UsageError
from r2ccl_core.jobs.model import Model

Hosts = tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """Degrees and batches.

    ``interleave`` is v, the virtual stages of a GPU; ``micro_batch`` b sequences, of which a data-parallel rank
    processes ``micro_batches`` per iteration. ``zero`` is ZeRO's stage, 0 to 3. ``gradient_bytes`` per element, reduced
    in buckets of ``bucket_bytes``; the part ``overlap`` of data-parallel communication is hidden behind the backward
    pass.
    """

    data: int
    tensor: int = 1
    pipeline: int = 1
    expert: int = 1
    interleave: int = 1
    micro_batch: int = 1
    micro_batches: int = 1
    zero: int = 0
    gradient_bytes: int = 4
    bucket_bytes: int = 256 << 20
    overlap: float = 0.0

    def __post_init__(self) -> None:
        for key in ("data", "tensor", "pipeline", "expert", "interleave", "micro_batch", "micro_batches"):
            if getattr(self, key) < 1:
                raise UsageError(f"layout: {key} = {getattr(self, key)}: must be 1 or more")
        if self.zero not in (0, 1, 2, 3):
            raise UsageError(f"layout: zero = {self.zero}: ZeRO has the stages 0 to 3")
        if self.gradient_bytes not in (2, 4) or self.bucket_bytes < 1:
            raise UsageError("layout: gradients have 2 or 4 bytes an element, and a bucket has a byte or more")
        if not 0.0 <= self.overlap <= 1.0:
            raise UsageError(f"layout: overlap = {self.overlap:g}: must be 0 to 1")
        if self.interleave > 1 and self.pipeline == 1:
            raise UsageError(f"layout: interleave = {self.interleave}: there is no pipeline to interleave")
        if self.data % self.expert:
            raise UsageError(f"layout: expert = {self.expert} does not divide data = {self.data}")

    @property
    def gpus(self) -> int:
        """All ranks."""
        return self.tensor * self.pipeline * self.data

    @property
    def sequences(self) -> int:
        """B, the global batch."""
        return self.data * self.micro_batch * self.micro_batches

    def check(self, model: Model, hosts: int, gpus_per_host: int) -> None:
        """Raises `UsageError` where the model or the hosts cannot be cut like that."""
        self.check_hosts(hosts, gpus_per_host)
        cuts = (
            ("tensor", self.tensor, "heads", model.heads),
            ("pipeline x interleave", self.pipeline * self.interleave, "layers", model.layers),
            ("expert", self.expert, "experts", model.experts),
        )
        for what, by, of, count in cuts:
            if count % by:
                raise UsageError(f"layout: {what} = {by} does not divide the {count} {of} of {model.name}")

    def check_hosts(self, hosts: int, gpus_per_host: int) -> None:
        """Raises `UsageError` where the hosts cannot be cut like that."""
        if self.gpus != hosts * gpus_per_host:
            raise UsageError(
                f"layout: tensor {self.tensor} x pipeline {self.pipeline} x data {self.data} are {self.gpus} GPUs, "
                f"the topology has {hosts * gpus_per_host}"
            )
        for what, degree in (("tensor", self.tensor), ("tensor x data", self.tensor * self.data)):
            if degree % gpus_per_host and gpus_per_host % degree:
                raise UsageError(f"layout: {what} = {degree} neither divides nor fills hosts of {gpus_per_host} GPUs")

    def stages(self, gpus_per_host: int) -> tuple[Hosts, ...]:
        """The hosts of every pipeline stage; small stages share one."""
        size = self.tensor * self.data
        return tuple(
            tuple(range(first // gpus_per_host, (first + size - 1) // gpus_per_host + 1))
            for first in range(0, self.gpus, size)
        )

    def tensor_hosts(self, gpus_per_host: int) -> tuple[Hosts, ...]:
        """The hosts of every tensor group that needs several; empty if they fit into one."""
        wide = self.tensor // gpus_per_host
        return (
            ()
            if wide < 2
            else tuple(tuple(range(first, first + wide)) for first in range(0, self.gpus // gpus_per_host, wide))
        )
