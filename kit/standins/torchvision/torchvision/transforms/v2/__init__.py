"""Image transforms, second version: nothing is transformed."""

from typing import Any

from torchvision.transforms.v2 import functional as functional
from torchvision.unsupported import placeholder


def __getattr__(name: str) -> Any:
    return placeholder(name)
