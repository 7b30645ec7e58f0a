"""One list of secret names: a local worker never sees such a variable, and a bundle never holds its value."""

import pytest

from kit.host.local_runtime import worker_environment
from kit.results.scrub import scrubber_for
from kit.secrets import is_secret

SECRETS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "HF_TOKEN",
    "GITHUB_TOKEN",
    "DB_PASSWD",
    "db_password",
    "SSH_PRIVATE_KEY",
    "OPENAI_APIKEY",
)


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_reaches_neither_worker_nor_bundle(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    assert is_secret(name)
    monkeypatch.setenv(name, "plain-value-42")
    assert name not in worker_environment()
    assert "plain-value-42" not in worker_environment().values()
    assert b"plain-value-42" not in scrubber_for({}, {name: "plain-value-42"})(b"said plain-value-42 aloud")


@pytest.mark.parametrize("name", ["PATH", "TOKENIZERS_PARALLELISM", "SGLANG_USE_CPU_ENGINE", "TRITON_INTERPRET"])
def test_a_setting_is_no_secret(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "1")
    assert worker_environment()[name] == "1"
