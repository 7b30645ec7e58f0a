"""Fixtures of the unit tests."""

from pathlib import Path

import pytest

from kit.synthetic.catalogue import MODELS
from kit.synthetic.files import materialise


@pytest.fixture(scope="session")
def assets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the synthetic models; not to be written to."""
    folder = tmp_path_factory.mktemp("assets")
    materialise(MODELS, folder)
    return folder
