"""Synthetic sequences with a rule that a model can learn."""

import torch
from torch import Tensor
from torch.utils.data import Dataset


class Recurrence(Dataset[Tensor]):
    """`count` sequences of `length + 1` tokens in which each token follows from the two before:
    `x[i] = (x[i-1] + 3 * x[i-2] + 1) mod tokens`, with one token in twenty drawn at random.

    The same seed gives every rank the same data; the sampler gives each its own part.
    """

    def __init__(self, *, count: int, length: int = 32, tokens: int = 32, seed: int = 0) -> None:
        draw = torch.Generator().manual_seed(seed)
        rows = torch.randint(tokens, (count, length + 1), generator=draw)
        noise = torch.rand(count, length + 1, generator=draw) < 0.05
        for at in range(2, length + 1):
            ruled = (rows[:, at - 1] + 3 * rows[:, at - 2] + 1) % tokens
            rows[:, at] = torch.where(noise[:, at], rows[:, at], ruled)
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Tensor:
        return self.rows[index]
