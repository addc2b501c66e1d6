"""accelerate's test of its collective operations, told to be on CPUs as its launcher would."""

from accelerate import PartialState
from accelerate.test_utils.scripts import test_ops


def main() -> None:
    PartialState(cpu=True)
    test_ops.main()
