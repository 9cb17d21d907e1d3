"""A small GPT on bytes, in PyTorch: pre-norm blocks of causal attention and a GELU network four times as wide, with the
head tied to the embedding (Radford 2019).

A rank holds the whole model, one stage of it (`Gpt.cut`), or a share of the heads and columns of each block
(`harness.backends.parallel`).
"""

import torch
from torch import nn
from torch.nn import functional

VOCABULARY = 256


class Block(nn.Module):  # type: ignore[misc]  # torch is not typed here
    """(batch, context, width) in and out."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.head_width = width // heads
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query_key_value, self.attended = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Each position sees those before it."""
        batch, context, _ = x.shape
        # Query, key and value of a head lie together, so that some of the heads are some of the rows of one matrix.
        split = self.query_key_value(self.before_attention(x)).view(batch, context, -1, 3, self.head_width)
        query, key, value = split.permute(3, 0, 2, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.attended(seen.transpose(1, 2).reshape(batch, context, -1))
        return x + self.narrow(functional.gelu(self.wide(self.before_mlp(x))))


class Gpt(nn.Module):  # type: ignore[misc]  # torch is not typed here
    """Bytes (batch, context) to the scores of the next ones, (batch, context, 256)."""

    def __init__(self, layers: int, width: int, heads: int, context: int) -> None:
        super().__init__()
        self.bytes, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.begins = self.ends = True
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                # What a block adds to its input is smaller the more blocks there are.
                depth = (2 * layers) ** -0.5 if "attended" in name or "narrow" in name else 1.0
                nn.init.normal_(parameter, std=0.02 * depth)

    def cut(self, stage: int, stages: int) -> None:
        """Keeps one of `stages` equal runs of blocks: the first also embeds, the last also scores, and both have the
        embedding."""
        first, last = (len(self.blocks) * s // stages for s in (stage, stage + 1))
        self.blocks = self.blocks[first:last]
        self.begins, self.ends = stage == 0, stage == stages - 1
        if not self.begins:
            del self.places
        if not self.ends:
            del self.norm
        if not (self.begins or self.ends):
            del self.bytes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A stage in the middle takes and gives what a block does."""
        if self.begins:
            x = self.bytes(x) + self.places(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            x = block(x)
        return functional.linear(self.norm(x), self.bytes.weight) if self.ends else x


def cross_entropy(scores: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
    """The mean over all bytes, in nats."""
    return functional.cross_entropy(scores.view(-1, VOCABULARY), following.reshape(-1))
