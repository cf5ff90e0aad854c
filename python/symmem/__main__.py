"""The ``symmem`` command: ``python -m symmem``."""

import sys

from ._symmem import main as _main


def main() -> int:
    """Run the command with this process's arguments, and return its exit code."""
    return _main(["symmem", *sys.argv[1:]], sys.executable, ["-m", "symmem"])


if __name__ == "__main__":
    sys.exit(main())
