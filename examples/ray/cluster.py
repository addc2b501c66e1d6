"""Start a Ray cluster of several nodes on this machine, to try `backend: ray`.

    python examples/ray/cluster.py --nodes 2

It prints the variables that lead sgpu to the cluster, and ends with Ctrl-C. It needs sgpu with
the extra `ray`.
"""

import argparse
import os
import shlex
import signal
import sys
import time

from sgpu_decl.testing.ray_cluster import ray_cluster


def main() -> None:
    parser = argparse.ArgumentParser(description="A Ray cluster on this machine.")
    parser.add_argument("--nodes", type=int, default=2, help="how many nodes (default: 2)")
    parser.add_argument("--cpus", type=int, default=2, help="CPUs of each node (default: 2)")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    say(f"starting {options.nodes} nodes: 20 s on two quiet cores, and minutes on a busy machine")
    began = time.monotonic()
    with ray_cluster(nodes=options.nodes, cpus=options.cpus, token=True, whole=True) as cluster:
        storage, token = cluster.folder / "storage", cluster.folder / "token"
        storage.mkdir()
        with os.fdopen(os.open(token, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(cluster.token or "")
        for name, value in (
            ("RAY_API_SERVER_ADDRESS", cluster.url),
            ("RAY_AUTH_TOKEN_PATH", token),
            ("RAY_STORAGE", storage),  # what `backend.storage` of examples/fsdp names
        ):
            print(f"export {name}={shlex.quote(str(value))}", flush=True)
        say(
            f"{options.nodes} nodes are up after {time.monotonic() - began:.0f} s; Ctrl-C ends them"
        )
        signal.pause()


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
    except (OSError, RuntimeError, ValueError) as error:
        say(f"error: {error}")
        say(
            "hint: a busy machine makes Ray too slow to start or to end. Try again once it is quiet"
        )
        sys.exit(1)
