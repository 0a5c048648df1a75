"""Becomes the program."""

import os
import sys

from . import binary


def main() -> None:
    os.execv(binary(), ["rowhouse", *sys.argv[1:]])


if __name__ == "__main__":
    main()
