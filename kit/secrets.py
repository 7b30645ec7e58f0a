"""Which variables hold secrets, by their names: kept from a worker, and taken out of bundles."""

_WORDS = (
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "CREDENTIAL",
    "API_KEY",
    "APIKEY",
    "ACCESS_KEY",
    "PRIVATE_KEY",
)


def is_secret(name: str) -> bool:
    """Whether a variable of this name is taken for a secret, whatever its case; ``TOKENIZERS_…`` is none."""
    words = name.upper().replace("TOKENIZER", "")
    return any(word in words for word in _WORDS)
