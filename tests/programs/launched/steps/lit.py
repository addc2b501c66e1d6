"""Lightning's Trainer, as it is."""

import pytorch_lightning as lightning
import torch
from pace import end, given, step
from torch.utils.data import DataLoader, TensorDataset


class Model(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        step()
        loss = self.layer(batch[0]).square().mean()
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.01)


trainer = lightning.Trainer(
    max_steps=given.max_steps, accelerator="cpu", logger=False, enable_checkpointing=False,
    enable_model_summary=False,
)  # fmt: skip
trainer.fit(Model(), DataLoader(TensorDataset(torch.ones(400, 4)), batch_size=4))
end()
