"""The recorded sample of an upstream LoRA case: one text, and what trainer and sampler said of its tokens."""

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kit.errors import ImageFault

if TYPE_CHECKING:
    import torch

SAMPLE_FILE: Final = "compare_sample_train_data.pt"
_KEYS: Final = ("tokens", "training_logprobs", "sampling_logprobs")

Values: TypeAlias = "NDArray[np.float64]"


@dataclass(frozen=True)
class RecordedSample:
    """One text of n tokens. The first token has no logprob.

    Attributes:
        tokens: [n] int64, n at least 2, none negative.
        training: [n - 1] float64, nat; the trainer's logprob of each token after the first. Finite.
        sampling: [n - 1] float64, nat; the same of the engine that sampled the text. Finite.
    """

    tokens: NDArray[np.int64]
    training: Values
    sampling: Values


def load_sample(path: Path) -> RecordedSample:
    """Read a sample without running any code that the file may hold.

    Each entry is a tensor or a list of numbers, flat or wrapped in one list more.

    Raises:
        ImageFault: unreadable, no file of torch, one that needs unpickling, or not such a sample.
    """
    saved = _saved(path)
    if not isinstance(saved, dict) or any(key not in saved for key in _KEYS):
        raise _not_a_sample(path, f"expected the keys {', '.join(_KEYS)}")
    tokens, training, sampling = (_flat(path, key, saved[key]) for key in _KEYS)
    if len(tokens) < 2:
        raise _not_a_sample(path, f"tokens holds {len(tokens)} values, and a sample needs two")
    if not np.all((tokens == np.floor(tokens)) & (tokens >= 0) & (tokens < 2**31)):
        raise _not_a_sample(path, "tokens holds a value that is no token id")
    for key, values in (("training_logprobs", training), ("sampling_logprobs", sampling)):
        if len(values) != len(tokens) - 1:
            raise _not_a_sample(
                path, f"{key} holds {len(values)} values for {len(tokens)} tokens, expected {len(tokens) - 1}"
            )
    return RecordedSample(tokens.astype(np.int64), training, sampling)


def _saved(path: Path) -> Any:
    import torch

    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise ImageFault(
            f"{path} is damaged, or holds more than tensors, lists and numbers: to load it could run code",
            "use one that was saved with plain tensors and lists",
        ) from None
    except OSError as error:
        raise ImageFault(f"{path}: cannot be read: {error.strerror or error}", "fetch the asset again") from None
    except Exception as error:  # torch tells of a damaged file by many kinds of exceptions
        raise ImageFault(
            f"{path} is no file that torch saved ({type(error).__name__})", "fetch the asset again"
        ) from None


def _flat(path: Path, key: str, value: object) -> Values:
    """One entry as [n] float64, which holds every token id and every float32 exactly."""
    try:
        array = np.asarray(_plain(value), dtype=np.float64)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise _not_a_sample(path, f"{key} is not a list of numbers") from None
    if array.ndim == 2 and array.shape[0] == 1:
        array = array[0]
    if array.ndim != 1:
        raise _not_a_sample(path, f"{key} has the shape {list(array.shape)}, expected one list")
    if not np.all(np.isfinite(array)):
        raise _not_a_sample(path, f"{key} holds a value that is not finite")
    return array


def _plain(value: object) -> object:
    """Lists and numbers in place of tensors; a string is no number, although numpy would read it as one."""
    import torch

    if isinstance(value, torch.Tensor):
        return _of_tensor(value)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_plain(item) for item in value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    raise TypeError(type(value).__name__)


def _of_tensor(tensor: "torch.Tensor") -> object:
    import torch

    if tensor.dtype is torch.bool or tensor.is_complex():
        raise TypeError(str(tensor.dtype))
    return tensor.detach().to(torch.float64).tolist()


def _not_a_sample(path: Path, why: str) -> ImageFault:
    return ImageFault(f"{path} is no recorded sample: {why}", "correct the asset's row, or use another sample")
