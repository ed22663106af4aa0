"""The command line: `layerwise VERB ...`, or `python -m layerwise` if the script is not on the PATH."""

import sys
from collections.abc import Sequence

from layerwise.cli.main import run_verb
from layerwise.verbs import commands


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code.

    Args:
        argv: the words after `layerwise`; None for those of this process.
    """
    return run_verb(commands(), sys.argv[1:] if argv is None else argv)


if __name__ == "__main__":
    sys.exit(main())
