"""A PyTorch Lightning training, with no word of who started it."""

import os
from typing import Any

import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Regression(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)
        self.rows = 0

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        x, y = batch
        self.rows += len(x)
        loss = nn.functional.mse_loss(self.layer(x), y)
        self.log("loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main() -> dict[str, Any]:
    torch.manual_seed(0)
    x = torch.randn(64, 4)
    data = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8)
    torch.manual_seed(int(os.environ["RANK"]))
    model = Regression()
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=2,
        enable_progress_bar=False,
        default_root_dir=os.environ["SGPU_OUTPUT_DIR"],
    )
    trainer.fit(model, data)
    return {
        "environment": type(trainer.strategy.cluster_environment).__name__,
        "place": [trainer.global_rank, trainer.local_rank, trainer.node_rank, trainer.world_size],
        "rows": model.rows,
        "loss": trainer.callback_metrics["loss"].item(),
        "weights": nn.utils.parameters_to_vector(model.parameters()).tolist(),
    }
