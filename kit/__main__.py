"""``python -m kit`` is the ``kit`` command."""

from kit.cli import main

if __name__ == "__main__":
    main()
