"""`python -m islands` does what `islands` does."""

import sys

from islands.cli.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
