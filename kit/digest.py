"""SHA-256 of what lies on the disk, for both sides of a run."""

import hashlib
from pathlib import Path


def file_sha256(path: Path) -> str:
    """SHA-256 (hex) of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
