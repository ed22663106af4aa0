"""`python -m layerwise`: the command line, if the script is not on the PATH."""

import sys

from layerwise.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
