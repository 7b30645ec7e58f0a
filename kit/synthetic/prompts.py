"""Seeded prompts, as token ids."""

from collections.abc import Iterable

from kit.synthetic.draws import below


def prompts(lengths: Iterable[int], vocab: int, seed: int) -> list[list[int]]:
    """One prompt per length, token ids uniform in [0, vocab); a prompt depends on `seed` and its place alone."""
    return [below(f"prompt/{seed}/{place}", length, vocab) for place, length in enumerate(lengths)]
