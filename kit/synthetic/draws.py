"""Integers drawn from a seeded stream. Importing this is light: batteries plan with it."""


def below(label: str, count: int, limit: int) -> list[int]:
    """`count` integers from 0 to `limit` − 1, `limit` at most 2**32; bias below `limit` / 2**32."""
    from kit.synthetic.stream import words

    if not 0 < limit <= 2**32:
        raise ValueError(f"limit {limit} is not in 1 … 2**32")
    return [(word >> 32) * limit >> 32 for word in map(int, words(label, count))]
