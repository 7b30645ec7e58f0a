"""Image files: nothing is read."""

import enum
from typing import Any

from torchvision.unsupported import placeholder


class ImageReadMode(enum.Enum):
    """Channels of a decoded image, as in torchvision."""

    UNCHANGED = 0
    GRAY = 1
    GRAY_ALPHA = 2
    RGB = 3
    RGB_ALPHA = 4


def __getattr__(name: str) -> Any:
    return placeholder(name)
