"""Fixtures of the tests of results."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="package", autouse=True)
def one_view_of_the_sources() -> Iterator[None]:
    """Who edits kit while its tests run does not make it another version in the middle of one."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("kit.host.facts", "kit.results.verify"):
            patch.setattr(f"{module}.source_digest", lambda: "5" * 64)
        yield
