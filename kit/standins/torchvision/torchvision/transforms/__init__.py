"""Image transforms: nothing is transformed."""

import enum
from typing import Any

from torchvision.transforms import functional as functional
from torchvision.transforms import v2 as v2
from torchvision.unsupported import placeholder


class InterpolationMode(enum.Enum):
    """Ways of resizing, as in torchvision; transformers builds a table of them on import."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


def __getattr__(name: str) -> Any:
    return placeholder(name)
