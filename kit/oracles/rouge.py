"""ROUGE-L as SGLang's tests compute it (`calculate_rouge_l` in sglang/test/test_utils.py): on characters, not on words."""

from rapidfuzz.distance import Indel


def rouge_l(left: str, right: str) -> float:
    """F-measure of the longest common subsequence of characters, 2 L / (m + n); 0 where both are empty, as upstream has it.

    That is the normalised similarity of the distance that counts insertions and deletions alone, (m + n − 2 L).
    """
    return float(Indel.normalized_similarity(left, right)) if left or right else 0.0
