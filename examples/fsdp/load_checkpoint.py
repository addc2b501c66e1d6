"""Load a checkpoint of the training on one process, and see that it predicts.

    python load_checkpoint.py FOLDER

FOLDER is one checkpoint (`.../checkpoints/epoch_004`), or an output folder, of which the newest is
taken. There is no process group: torch's distributed checkpoint then reads all shards by itself.
"""

import sys
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from data import Recurrence
from model import TrainingState, Transformer
from torch import nn


def load(folder: Path) -> TrainingState:
    """Return model, optimizer and epoch as they were saved."""
    model = Transformer()
    state = TrainingState(model, torch.optim.AdamW(model.parameters()))
    dcp.load({"state": state}, checkpoint_id=folder)
    return state


@torch.no_grad()
def evaluate(model: nn.Module) -> tuple[float, float]:
    """Return loss and share of right next tokens on sequences that training never saw."""
    rows = torch.stack(list(Recurrence(count=256, seed=1)))
    scores = model.eval()(rows[:, :-1])
    wanted = rows[:, 1:].flatten()
    loss = nn.functional.cross_entropy(scores, wanted)
    return loss.item(), (scores.argmax(-1) == wanted).float().mean().item()


def newest(folder: Path) -> Path:
    """Return the newest checkpoint under an output folder, or the folder if it is one."""
    if (folder / ".metadata").exists():
        return folder
    found = sorted(path.parent for path in folder.glob("checkpoints/*/.metadata"))
    if not found:
        sys.exit(f"no checkpoint in `{folder}`")
    return found[-1]


def main(folder: str) -> None:
    checkpoint = newest(Path(folder))
    state = load(checkpoint)
    loss, right = evaluate(state.model)
    print(f"loaded {checkpoint} on one process: after epoch {state.epoch}, on unseen data")
    print(f"loss {loss:.4f}, {right:.0%} of next tokens right")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python load_checkpoint.py FOLDER")
    main(sys.argv[1])
