"""Stand-in for torchvision, which does not import beside CPU torch.

SGLang and transformers import names of it in every process. Text models call none of them; a call raises.
"""

from torchvision import io as io
from torchvision import transforms as transforms

__version__ = "0.0.0+kit.standin"
