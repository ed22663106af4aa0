"""`python -m tests.abuse`: runs the campaign; every failure prints the one command that repeats it."""

import os
import sys
import tempfile
from pathlib import Path

if __name__ == "__main__":
    tests = Path(__file__).resolve().parent.parent
    sys.path.insert(0, str(tests))
    # Read when the libraries are imported: no network, one thread, and caches in a home of its own.
    home = tempfile.mkdtemp(prefix="abuse-home-")
    os.environ |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HOME": home}
    from abuse.campaign import main

    sys.exit(main(sys.argv[1:], home))
