"""A DistributedDataParallel training that shows what that is for: one gradient, one model."""

import copy
import os
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main(steps: int) -> dict[str, Any]:
    """Return this rank's own first gradient and the one that DDP made of all, and all weights."""
    dist.init_process_group("gloo")
    torch.manual_seed(int(os.environ["RANK"]))  # other first weights and other data on each rank
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    drawn = flat(model)
    wrapped = DistributedDataParallel(model)
    started = flat(model)
    alone = copy.deepcopy(model)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
    losses, gradients = [], {}
    for step in range(steps):
        x = torch.randn(16, 4)
        y = x.sum(1, keepdim=True)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(wrapped(x), y)
        loss.backward()
        if step == 0:
            nn.functional.mse_loss(alone(x), y).backward()
            gradients = {"own": gradient(alone), "shared": gradient(model)}
        optimizer.step()
        losses.append(loss.item())
    dist.destroy_process_group()
    weights = {"drawn": drawn, "started": started, "ended": flat(model)}
    return {"gradients": gradients, "weights": weights, "losses": losses}


def flat(model: nn.Module) -> list[float]:
    return nn.utils.parameters_to_vector(model.parameters()).tolist()


def gradient(model: nn.Module) -> list[float]:
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()]).tolist()
