"""Reads its data as nanoGPT does, from files beside it, and leaves its checkpoint in `out/`."""

import os

import numpy as np

dataset, out_dir = "shakespeare", "out"
data_dir = os.path.join("data", dataset)


def get_batch(split: str) -> "np.ndarray[tuple[int, int], np.dtype[np.int64]]":
    data = np.memmap(os.path.join(data_dir, f"{split}.bin"), dtype=np.uint16, mode="r")
    return np.stack([data[i : i + 4].astype(np.int64) for i in range(0, len(data), 4)])


if __name__ == "__main__":
    with open(os.path.join(data_dir, "meta.txt")) as meta:
        print("vocabulary", meta.read().strip())
    print("sum", get_batch("train").sum() + get_batch("val").sum())
    os.makedirs(out_dir, exist_ok=True)
    with open(os.path.join(out_dir, f"ckpt-{os.environ['RANK']}.pt"), "wb") as checkpoint:
        checkpoint.write(b"weights")
