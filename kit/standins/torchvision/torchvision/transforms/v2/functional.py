"""Image functions: none."""

from typing import Any

from torchvision.unsupported import placeholder


def __getattr__(name: str) -> Any:
    return placeholder(name)
