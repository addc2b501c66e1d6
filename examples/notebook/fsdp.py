"""FSDP2 training by a decorator: the cells of `fsdp.ipynb`, as a script."""

# %% [markdown]
# # FSDP2 training by a decorator
#
# A small Transformer learns to tell classes of synthetic sequences apart, on two ranks of this
# machine, without a GPU. The function that trains is an ordinary one; `@distributed` makes it run
# on ranks. It needs the extras `torch` and `mlflow`.

# %%
import os
import time
from pathlib import Path
from typing import Any

import mlflow
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from sgpu_decl import distributed, runtime
from sgpu_decl.compute import GPUType

TOKENS, LENGTH, CLASSES = 64, 32, 8

# %% [markdown]
# ## Data
#
# Every class has favourite tokens, which are a third of each of its sequences; the rest is noise.
# The same seed gives every rank the same data, and a `DistributedSampler` gives each its own part.


# %%
class Favourites(Dataset[tuple[Tensor, Tensor]]):
    """`count` pairs of a sequence of tokens and its class."""

    def __init__(self, count: int, *, seed: int = 0) -> None:
        draw = torch.Generator().manual_seed(seed)
        self.classes = torch.randint(CLASSES, (count,), generator=draw)
        noise = torch.randint(TOKENS, (count, LENGTH), generator=draw)
        liked = torch.randint(TOKENS // CLASSES, (count, LENGTH), generator=draw)
        liked = liked * CLASSES + self.classes[:, None]
        share = torch.rand(count, LENGTH, generator=draw)
        self.rows = torch.where(share < 0.33, liked, noise)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.rows[index], self.classes[index]


# %% [markdown]
# ## Model
#
# `Training` is what a checkpoint holds. Names and shards in it are those of the whole model, so
# that a checkpoint of any number of ranks loads on any other, on a single process too.


# %%
class Classifier(nn.Module):
    """[batch, length] of token numbers to [batch, classes]."""

    def __init__(self, *, width: int = 64, layers: int = 2, heads: int = 4) -> None:
        super().__init__()
        self.token = nn.Embedding(TOKENS, width)
        self.position = nn.Parameter(torch.zeros(LENGTH, width))
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True
            )
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token(tokens) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


class Training(Stateful):
    """Model and optimizer as torch's distributed checkpoint reads and writes them."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.model = model
        self.optimizer = optimizer

    def state_dict(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state_dict["model"],
            optim_state_dict=state_dict["optimizer"],
        )


# %% [markdown]
# ## Training
#
# One process for each rank calls this function: it joins the others, shards the model, trains on
# its part of the data, logs to the MLflow run that the call has, writes its shards of a checkpoint
# after each epoch, and returns a value.


# %%
@distributed(gpus=2, gpu_type=GPUType.CPU)
def train(
    epochs: int = 3, samples: int = 1024, batch: int = 64, lr: float = 5e-3
) -> dict[str, Any]:
    runtime.init_process_group()  # nccl where there are GPUs, else gloo
    rank, world = runtime.get_global_rank(), runtime.get_world_size()
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", runtime.get_local_rank())
        torch.cuda.set_device(device)
    mlflow.start_run()  # joins the run of the call, on every rank

    data = Favourites(samples)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=batch, sampler=sampler, drop_last=True)

    torch.manual_seed(0)  # the same first weights on every rank
    model = Classifier().to(device)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    print(f"rank {rank} of {world} on {device}: {parameters:,} parameters, {len(loader)} steps")

    losses: list[float] = []
    checkpoint = Path()
    step = 0
    for epoch in range(1, epochs + 1):
        sampler.set_epoch(epoch)
        started = time.perf_counter()
        total = torch.zeros((), device=device)
        for rows, classes in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(rows.to(device)), classes.to(device))
            loss.backward()
            optimizer.step()
            total += loss.detach()
            step += 1
            if step % 2 == 0:
                mlflow.log_metric(f"loss/rank_{rank}", loss.item(), step=step)

        dist.all_reduce(total)
        losses.append(total.item() / world / len(loader))
        if rank == 0:
            mlflow.log_metric("loss", losses[-1], step=epoch)
            seconds = time.perf_counter() - started
            print(f"epoch {epoch} of {epochs}: loss {losses[-1]:.4f}, {seconds:.1f} s")
        checkpoint = Path(os.environ["SGPU_OUTPUT_DIR"]) / "checkpoints" / f"epoch_{epoch:03}"
        dcp.save({"training": Training(model, optimizer)}, checkpoint_id=checkpoint)

    mlflow.end_run()
    dist.destroy_process_group()
    return {
        "rank": rank,
        "world_size": world,
        "device": str(device),
        "loss": losses,
        "checkpoint": str(checkpoint),
    }


# %% [markdown]
# ## Run it
#
# The call makes a plan, as `sgpu plan` does for a YAML file, launches the ranks, shows what rank 0
# prints, and returns what every rank returned, in rank order. An exception of a rank is raised
# here. `train.plan()` shows the plan alone, and `train.with_overrides(gpus=8,
# gpu_type=GPUType.H100)` is the same training elsewhere.

# %%
results = train.distributed(epochs=3)

# %%
for result in results:
    print(f"rank {result['rank']}: loss {result['loss'][0]:.4f} to {result['loss'][-1]:.4f}")

# %% [markdown]
# ## Load the checkpoint
#
# There is no process group here: torch's distributed checkpoint then reads the shards of all ranks
# by itself.

# %%
model = Classifier()
dcp.load(
    {"training": Training(model, torch.optim.AdamW(model.parameters()))},
    checkpoint_id=results[0]["checkpoint"],
)
unseen = Favourites(512, seed=1)
with torch.no_grad():
    right = (model.eval()(unseen.rows).argmax(-1) == unseen.classes).float().mean().item()
print(f"{right:.0%} of unseen sequences are told apart; one in {CLASSES} would be by chance")
