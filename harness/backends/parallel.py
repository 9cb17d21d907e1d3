"""A GPT distributed over ranks: replicas (DDP) or shards (FSDP2) of the data, shares of each block (tensor parallelism,
Shoeybi 2019), and stages of blocks (pipeline parallelism, by `torch.distributed.pipelining`). The layouts combine.

Every rank creates the whole model from the seed and keeps its part, so all layouts start with the same weights.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from harness.backends.gpt import Block, Gpt, cross_entropy


class Degrees(NamedTuple):
    """The degree of each kind of parallelism; their product is the number of ranks."""

    dp: int = 1
    tp: int = 1
    pp: int = 1
    sharded: bool = False
    """Whether the replicas shard the weights (FSDP2) instead of copying them (DDP)."""
    micro_batches: int = 1
    """Parts of a batch that the stages work on at the same time."""


Report = Callable[[], None]
"""Called at the end of a step's forward pass, if that time is defined."""


class Spread:
    """This rank's part of the model, and its step."""

    def __init__(self, model: Gpt, degrees: Degrees, bucket_bytes: int) -> None:
        self._degrees = degrees
        self.part = model
        device = next(model.parameters()).device
        mesh = init_device_mesh(device.type, (degrees.pp, degrees.dp, degrees.tp), mesh_dim_names=("pp", "dp", "tp"))
        self.stage, self.replica, self._share = mesh.get_coordinate()
        self._last = self.stage == degrees.pp - 1
        if degrees.tp > 1:
            for block in model.blocks:
                _share(block, mesh["tp"].get_local_rank(), degrees.tp, mesh["tp"].get_group())
        if degrees.pp > 1:
            model.cut(self.stage, degrees.pp)
        self._tied = _tied_group(mesh.mesh, self.stage) if degrees.pp > 1 else None
        # DDP's buckets do not work with micro-batches, so the replicas of a pipeline average at its end.
        piped = degrees.pp > 1 and degrees.dp > 1 and not degrees.sharded
        self._replicas, self._bucket_bytes = (mesh["dp"].get_group() if piped else None), bucket_bytes
        self._runs = model if piped else _over_data(model, degrees, mesh["dp"], bucket_bytes)
        self._schedule = self._pipeline(mesh["pp"].get_group(), device) if degrees.pp > 1 else None

    @property
    def place(self) -> tuple[int, ...]:
        """Ranks at the same place hold the same weights."""
        return (self.stage, self._share, *((self.replica,) if self._degrees.sharded else ()))

    @property
    def same_weights(self) -> int:
        """Ranks with the same value end with weights that together form one complete model."""
        return 0 if self._degrees.sharded else self.replica

    def step(self, given: torch.Tensor, following: torch.Tensor, forward_ended: Report) -> float | None:
        """Forward and backward pass; returns the loss of this rank's replica if this rank is in its last stage."""
        if self._schedule is None:
            loss = cross_entropy(self._runs(given), following)
            forward_ended()
            loss.backward()
            return float(loss.item())
        losses: list[torch.Tensor] = []
        if self.stage == 0:
            self._schedule.step(given)
        elif self._last:
            self._schedule.step(target=following, losses=losses)
        else:
            self._schedule.step()
        if self._replicas is not None:
            _average(self.part, self._replicas, self._bucket_bytes)
        if self._tied is not None:
            dist.all_reduce(local(self.part.bytes.weight.grad), group=self._tied)
        return float(torch.stack(losses).mean().item()) if self._last else None

    def _pipeline(self, group: Any, device: torch.device) -> Any:
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B

        stage = PipelineStage(self._runs, self.stage, self._degrees.pp, device, group=group)
        return Schedule1F1B(stage, self._degrees.micro_batches, loss_fn=cross_entropy)


def local(tensor: Any) -> torch.Tensor:
    """The part of `tensor` in this rank's memory."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def _over_data(model: Gpt, degrees: Degrees, mesh: Any, bucket_bytes: int) -> nn.Module:
    if degrees.sharded:
        from torch.distributed.fsdp import fully_shard

        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        return model
    if degrees.dp == 1:
        return model
    return DistributedDataParallel(model, process_group=mesh.get_group(), bucket_cap_mb=bucket_bytes / (1 << 20))


def _average(model: nn.Module, group: Any, bucket_bytes: int) -> None:
    """Averages all gradients over the replicas, in buckets that start with the last parameters."""
    gradients = [p.grad for p in reversed(list(model.parameters())) if p.grad is not None]
    while gradients:
        bucket = [gradients.pop(0)]
        while gradients and sum(g.nbytes for g in bucket) < bucket_bytes:
            bucket.append(gradients.pop(0))
        flat = torch.cat([g.reshape(-1) for g in bucket])
        dist.all_reduce(flat, group=group)
        flat /= dist.get_world_size(group)
        for gradient, part in zip(bucket, flat.split([g.numel() for g in bucket]), strict=True):
            gradient.copy_(part.view_as(gradient))


def _tied_group(ranks: torch.Tensor, stage: int) -> Any:
    """The group of the first and the last stage, which hold the same embedding; None on stages between them. Every rank
    creates all groups, in the same order."""
    found = None
    for ends in zip(ranks[0].flatten().tolist(), ranks[-1].flatten().tolist(), strict=True):
        group = dist.new_group(list(ends))
        if dist.get_rank() in ends and stage in (0, len(ranks) - 1):
            found = group
    return found


def _share(block: Block, number: int, of: int, group: Any) -> None:
    """Keeps only this rank's heads and columns of a block."""
    block.query_key_value = _Columns(block.query_key_value, number, of, group)
    block.attended = _Rows(block.attended, number, of, group)
    block.wide = _Columns(block.wide, number, of, group)
    block.narrow = _Rows(block.narrow, number, of, group)


class _Columns(nn.Module):  # type: ignore[misc]  # torch is not typed here
    """A share of a linear layer's outputs."""

    def __init__(self, whole: nn.Linear, number: int, of: int, group: Any) -> None:
        super().__init__()
        self._group = group
        self.weight = nn.Parameter(whole.weight.detach().chunk(of, 0)[number].clone())
        self.bias = nn.Parameter(whole.bias.detach().chunk(of)[number].clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The ranks' gradients with respect to the input are summed."""
        return functional.linear(_SumBackward.apply(x, self._group), self.weight, self.bias)


class _Rows(nn.Module):  # type: ignore[misc]  # torch is not typed here
    """A linear layer for a share of the inputs; the ranks' results are summed."""

    def __init__(self, whole: nn.Linear, number: int, of: int, group: Any) -> None:
        super().__init__()
        self._group = group
        self.weight = nn.Parameter(whole.weight.detach().chunk(of, 1)[number].clone())
        self.bias = nn.Parameter(whole.bias.detach().clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The bias is added once, after the sum."""
        return _SumForward.apply(functional.linear(x, self.weight), self._group) + self.bias


class _SumForward(torch.autograd.Function):  # type: ignore[misc]  # torch is not typed here
    """Sums over a group in the forward pass; gradients pass unchanged."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        total = x.clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None


class _SumBackward(torch.autograd.Function):  # type: ignore[misc]  # torch is not typed here
    """Passes values unchanged; sums their gradients over a group."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        total = gradient.contiguous().clone()
        dist.all_reduce(total, group=ctx.group)
        return total, None
