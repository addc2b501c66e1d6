"""One node of a run as the platform starts it: what ranks find there, and what is brought back."""

from typing import Any

TELL = """
import os
def main():
    print("hello from", os.environ["RANK"])
    return int(os.environ["RANK"])
"""


def test_ranks_of_one_node_return_their_values(make_hosted: Any) -> None:
    hosted = make_hosted(TELL)
    assert hosted.run() == [0], hosted.log()
    print(hosted.log())
    assert [hosted.read(f"ranks/{rank}/output.json") for rank in range(2)] == [0, 1]
