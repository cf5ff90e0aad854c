"""The ``symmem`` command: ``symmem``, ``python -m symmem``, and this file."""

import os
import signal
import sys

if not __package__:
    # Run as a file, whose folder comes first then. A folder of the user's that is called symmem must not come before it.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from symmem._symmem import main as _main


def main() -> int:
    """Run the command with this process's arguments, and return its exit code."""
    # Python's handler would wait for the command to end.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _main(["symmem", *sys.argv[1:]], sys.executable, [os.path.abspath(__file__)])


if __name__ == "__main__":
    sys.exit(main())
