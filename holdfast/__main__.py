"""`python -m holdfast`, for launchers that start a module: `accelerate launch -m holdfast fit`, or torchrun."""

import sys

from holdfast.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
