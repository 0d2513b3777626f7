"""The command line: ``foveate``, ``python -m foveate``."""

import sys

from ._foveate import command_line


def main() -> int:
    """Run the command line; return its exit code."""
    return command_line(["foveate", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
