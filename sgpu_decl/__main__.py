"""The program `sgpu`, also as `python -m sgpu_decl`. It can answer Ctrl-C before it has imported
the command line."""

import gc
import sys


def main() -> int:
    """Run one command; return the exit code."""
    # A command is short and makes many small values: with the default threshold the collector takes
    # a third of the time of a large plan. Importing the command line leaves that of a process as it
    # is.
    gc.set_threshold(1_000_000)
    try:
        from sgpu_decl.cli.main import main as run_command

        return run_command()
    except KeyboardInterrupt:  # before the command line was loaded
        sys.stderr.write("error[interrupted]: interrupted\n")
        return 130


if __name__ == "__main__":
    sys.exit(main())
