"""``python -m gpushim`` is the command ``gpushim``."""

import os
import sys

from ._command import GpushimError, command


def main() -> None:
    """Becomes the command."""
    try:
        path = command()
    except GpushimError as error:
        sys.exit(f"gpushim: {error}")
    os.execv(path, [path, *sys.argv[1:]])


if __name__ == "__main__":
    main()
