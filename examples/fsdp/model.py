"""A small causal Transformer, and its checkpointable state."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.stateful import Stateful


class Block(nn.Module):
    """Pre-norm attention and MLP over [batch, length, width]."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.merge = nn.Linear(width, width)
        self.before_mlp = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.before_attention(x)).view(batch, length, 3, self.heads, -1)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.merge(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.before_mlp(x))


class Transformer(nn.Module):
    """Predicts next tokens: [batch, length] of token numbers to [batch * length, tokens]."""

    def __init__(
        self,
        *,
        tokens: int = 32,
        length: int = 32,
        width: int = 96,
        layers: int = 3,
        heads: int = 4,
    ) -> None:
        super().__init__()
        self.token = nn.Embedding(tokens, width)
        self.position = nn.Parameter(torch.zeros(length, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, tokens)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token(tokens) + self.position[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).flatten(0, 1))


class TrainingState(Stateful):
    """Model and optimizer as torch's distributed checkpoint reads and writes them.

    Names and shards are the whole model's, so that a checkpoint of any number of ranks loads on
    any other, on a single process too.
    """

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, epoch: int = 0) -> None:
        self.model = model
        self.optimizer = optimizer
        self.epoch = epoch

    def state_dict(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "epoch": self.epoch}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state_dict["model"],
            optim_state_dict=state_dict["optimizer"],
        )
        self.epoch = state_dict["epoch"]
