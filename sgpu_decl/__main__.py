"""`python -m sgpu_decl` is `sgpu`."""

import sys

from sgpu_decl.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
