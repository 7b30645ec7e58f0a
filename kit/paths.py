"""Where kit's own data lies: in a checkout beside the package, in an installed wheel inside it."""

import os
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_CHECKOUT = _PACKAGE.parent


def data_folder(name: str) -> Path:
    """The folder ``profiles`` or ``images``."""
    installed = _PACKAGE / "data" / name
    return installed if installed.is_dir() else _CHECKOUT / name


def dockerfile(name: str) -> Path:
    """A Dockerfile by its file name."""
    installed = _PACKAGE / "data" / name
    return installed if installed.is_file() else _CHECKOUT / name


def package_folder() -> Path:
    """The folder of the package ``kit`` itself, as it is copied into images."""
    return _PACKAGE


def cache_folder() -> Path:
    """Where wheels and synthetic assets are kept: ``$KIT_CACHE``, else ``$XDG_CACHE_HOME/kit``, else ``~/.cache/kit``.

    Always absolute: a container engine mounts no relative folder.
    """
    if own := os.environ.get("KIT_CACHE"):
        return Path(own).absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache").absolute() / "kit"
