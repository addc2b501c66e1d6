"""Train a small Transformer with FSDP2 on every rank of a run."""

import os
import time
from pathlib import Path
from typing import Any

import mlflow
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from data import Recurrence
from model import TrainingState, Transformer
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.data import DataLoader, DistributedSampler


def main(
    epochs: int = 5,
    samples: int = 4096,
    batch: int = 32,
    lr: float = 2e-3,
    log_every: int = 16,
    checkpoint_every: int = 2,
    dtype: str = "float32",
) -> dict[str, Any]:
    """Train, and return what every rank saw.

    Args:
        batch: sequences per rank and step.
        log_every: steps between two metrics in MLflow.
        checkpoint_every: epochs between two checkpoints; the last epoch always writes one.
        dtype: what layers compute in: `float32` or `bfloat16`. Weights are kept in `float32`.
    """
    device = join()
    try:
        return train(device, epochs, samples, batch, lr, log_every, checkpoint_every, dtype)
    finally:
        dist.destroy_process_group()


def join() -> torch.device:
    """Join the world that the rank's environment describes; return this rank's device."""
    if not torch.cuda.is_available():
        dist.init_process_group("gloo")
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    return device


def train(
    device: torch.device,
    epochs: int,
    samples: int,
    batch: int,
    lr: float,
    log_every: int,
    checkpoint_every: int,
    dtype: str,
) -> dict[str, Any]:
    rank, world = dist.get_rank(), dist.get_world_size()
    dataset = Recurrence(count=samples)
    sampler: DistributedSampler[torch.Tensor] = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, batch_size=batch, sampler=sampler, drop_last=True)

    torch.manual_seed(0)  # the same first weights on every rank
    model = Transformer().to(device)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    policy = MixedPrecisionPolicy(param_dtype=getattr(torch, dtype), reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    print(f"rank {rank} of {world} on {device}: {parameters:,} parameters, {len(loader)} steps")

    history: list[float] = []
    step = 0
    for epoch in range(1, epochs + 1):
        sampler.set_epoch(epoch)
        started = time.perf_counter()
        total = torch.zeros((), device=device)
        for rows in loader:
            rows = rows.to(device)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(rows[:, :-1]), rows[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            total += loss.detach()
            step += 1
            if step % log_every == 0:
                mlflow.log_metric(f"loss/rank_{rank}", loss.item(), step=step)

        mean = total / len(loader)
        dist.all_reduce(mean)
        history.append(mean.item() / world)
        seconds = time.perf_counter() - started
        if rank == 0:
            mlflow.log_metrics({"loss": history[-1], "epoch_seconds": seconds}, step=epoch)
            print(f"epoch {epoch} of {epochs}: loss {history[-1]:.4f}, {seconds:.1f} s")
        if epoch % checkpoint_every == 0 or epoch == epochs:
            save(TrainingState(model, optimizer, epoch))
    return {"rank": rank, "world_size": world, "device": str(device), "loss": history}


def save(state: TrainingState) -> None:
    """Write one distributed checkpoint: each rank its own shards, into the run's output folder."""
    folder = Path(os.environ["SGPU_OUTPUT_DIR"]) / "checkpoints" / f"epoch_{state.epoch:03}"
    dcp.save({"state": state}, checkpoint_id=folder)
    if dist.get_rank() == 0:
        print(f"checkpoint {folder}")
