"""Every rank says who it is, and returns it."""

import os


def main(greeting: str = "hello") -> dict[str, int | str]:
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    print(f"{greeting} from rank {rank} of {world}")
    return {"rank": rank, "world_size": world, "address": os.environ["SGPU_ADDRESS"]}
