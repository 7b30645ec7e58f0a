"""What every name of the stand-in does when it is called."""

from typing import NoReturn


class Unsupported(RuntimeError):
    """A function or class of torchvision that this stand-in does not provide."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"torchvision is kit's stand-in, without '{name}': install the real torchvision for image input"
        )


def placeholder(name: str) -> type:
    """A class that can be named, subclassed and imported, and raises `Unsupported` when it is called."""
    if name.startswith("__"):
        raise AttributeError(name)

    def refuse(cls: type, *args: object, **kwargs: object) -> NoReturn:
        raise Unsupported(name)

    return type(name, (), {"__new__": refuse})
