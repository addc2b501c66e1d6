"""Hugging Face's Trainer, as it is."""

import tempfile

import torch
from pace import end, given, step
from torch.utils.data import Dataset
from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainingArguments


class Numbers(Dataset):
    def __len__(self) -> int:
        return 4096

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        value = torch.full((8,), number / 4096)
        return {"x": value, "labels": value.sum(0, keepdim=True)}


class Model(PreTrainedModel):
    config_class = PretrainedConfig

    def __init__(self) -> None:
        super().__init__(PretrainedConfig())
        self.layer = torch.nn.Linear(8, 1)
        self.post_init()

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        step()
        guess = self.layer(x)
        return {"loss": (guess - labels).square().mean(), "logits": guess}


arguments = TrainingArguments(
    output_dir=tempfile.mkdtemp(), max_steps=given.max_steps, per_device_train_batch_size=4,
    logging_steps=max(1, given.max_steps // 50), save_strategy="no", report_to="none", use_cpu=True,
    disable_tqdm=True,
)  # fmt: skip
Trainer(model=Model(), args=arguments, train_dataset=Numbers()).train()
end()
