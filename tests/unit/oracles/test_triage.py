"""The judgement on texts that differ: what upstream saw, replayed, and everything that must not pass."""

import math

import pytest
from pydantic import ValidationError

from kit.oracles.triage import (
    BATCH_SIZES,
    NONE,
    Choice,
    Departure,
    Noise,
    Opinion,
    TextDifference,
    Variant,
    Verdict,
    first_difference,
    judge,
)

ALONE = (5, 7, 9, 1)
"""What the reference writes in a batch of one, and `LARGER` in any other: "a massive amount of", "massive amounts of"."""
LARGER = (5, 8, 2, 3)
NOISE = Noise(batch=1e-3, oracle=2e-3, unit=1e-3)


def opinion(
    who: str = "peer",
    gap: float = 0.004,
    subject: int = 8,
    reference: int = 7,
    third: int | None = None,
    above: float = 0.0,
) -> Opinion:
    """The reference's candidate is the likeliest, unless a ``third`` token is likelier by ``above``, nat."""
    best, second = Choice(token=reference, logprob=-0.7), Choice(token=subject, logprob=-0.7 - gap)
    return Opinion(
        who=who,
        best=best if third is None else Choice(token=third, logprob=-0.7 + above),
        second=second if third is None else best,
        subject=second.logprob,
        reference=best.logprob,
    )


def difference(
    subject: tuple[int, ...] = LARGER,
    variants: tuple[Variant, ...] = (Variant(sizes=(1,), tokens=ALONE), Variant(sizes=BATCH_SIZES[1:], tokens=LARGER)),
    gap: float = 0.004,
    noise: Noise = NOISE,
    departures: tuple[Departure, ...] | None = None,
) -> TextDifference:
    first = Departure(
        position=1,
        subject=subject[1] if len(subject) > 1 else NONE,
        reference=7,
        opinions=(opinion("subject", gap), opinion("peer", gap), opinion("oracle", gap)),
    )
    return TextDifference(
        row="row 0", subject=subject, variants=variants, departures=departures or (first,), noise=noise
    )


STEADY = (Variant(sizes=BATCH_SIZES, tokens=ALONE),)


def test_a_reference_that_flips_a_near_tied_token_at_batch_size_1_is_drift() -> None:
    judged = judge(difference())
    assert judged.verdict is Verdict.DRIFT
    assert "batch size 2, 3" in judged.reason and "token 1" in judged.reason


def test_the_same_texts_with_a_gap_above_1_are_a_fault() -> None:
    assert judge(difference(gap=1.0)).verdict is Verdict.DRIFT
    judged = judge(difference(gap=1.01))
    assert judged.verdict is Verdict.FAULT and "1.01 nat" in judged.reason


def test_no_noise_excuses_a_gap_above_1() -> None:
    loud = Noise(batch=5.0, oracle=5.0, unit=1.0)
    assert judge(difference(variants=STEADY, gap=1.01, noise=loud)).verdict is Verdict.FAULT


def test_a_tie_below_the_floor_is_a_near_tie_and_one_at_it_is_not() -> None:
    assert NOISE.floor == pytest.approx(2 * (2 * 2e-3 + 1e-3))
    assert judge(difference(variants=STEADY, gap=NOISE.floor * 0.99)).verdict is Verdict.NEAR_TIE
    assert judge(difference(variants=STEADY, gap=NOISE.floor * 1.01)).verdict is Verdict.FAULT


def test_the_floor_takes_the_larger_of_sweep_and_oracle() -> None:
    assert Noise(batch=3e-3, oracle=None, unit=0.0).floor == pytest.approx(12e-3)
    assert Noise(batch=1e-3, oracle=3e-3, unit=0.0).floor == pytest.approx(12e-3)
    assert math.isnan(Noise(batch=math.nan, oracle=1e-3, unit=0.0).floor)


def test_every_opinion_counts() -> None:
    """Close for the peer, and far apart for the subject or the oracle."""
    for who in ("subject", "oracle"):
        opinions = (opinion("peer"), opinion(who, gap=0.5))
        departure = Departure(position=1, subject=8, reference=7, opinions=opinions)
        assert judge(difference(variants=STEADY, departures=(departure,))).verdict is Verdict.FAULT


def test_a_candidate_far_behind_the_likeliest_token_is_a_fault() -> None:
    """The two candidates are close, and a third token is likelier than both by more than the floor."""
    opinions = (opinion("subject"), opinion("peer", third=99, above=NOISE.floor))
    departure = Departure(position=1, subject=8, reference=7, opinions=opinions)
    judged = judge(difference(variants=STEADY, departures=(departure,)))
    assert judged.verdict is Verdict.FAULT and "behind the likeliest" in judged.reason


def test_three_tokens_tie() -> None:
    """As SGLang 0.5.17 had it in bfloat16 on an H200: the oracle's two best and a third within 0.016 nat, floor 0.161."""
    opinions = (
        Opinion(
            who="subject",
            best=Choice(token=1936, logprob=-5.113610744476318),
            second=Choice(token=1895, logprob=-5.113610744476318),
            subject=-5.113610744476318,
            reference=-5.113610744476318,
        ),
        Opinion(
            who="peer",
            best=Choice(token=1936, logprob=-5.113883324739708),
            second=Choice(token=1895, logprob=-5.113883324739708),
            subject=-5.129508324739708,
            reference=-5.113883324739708,
        ),
        Opinion(
            who="oracle",
            best=Choice(token=1895, logprob=-5.104208014236417),
            second=Choice(token=875, logprob=-5.113392676748177),
            subject=-5.113392676748177,
            reference=-5.104208014236417,
        ),
    )
    noise = Noise(batch=0.0, oracle=0.024636019066469395, unit=0.03125)
    tie = Departure(position=1, subject=875, reference=1895, opinions=opinions)
    assert tie.behind == pytest.approx(0.015625)
    found = difference(
        subject=(5, 875, 2, 3), variants=(Variant(sizes=BATCH_SIZES, tokens=(5, 1895)),), departures=(tie,), noise=noise
    )
    assert judge(found).verdict is Verdict.NEAR_TIE
    quiet = Noise(batch=0.0, oracle=1e-3, unit=1e-3)
    assert judge(found.model_copy(update={"noise": quiet})).verdict is Verdict.FAULT


def test_what_follows_a_near_tie_must_be_near_ties_too() -> None:
    tie = Departure(position=1, subject=8, reference=7, opinions=(opinion("subject"), opinion("peer")))
    wide = Departure(
        position=3, subject=3, reference=4, opinions=(opinion("subject", 0.3, 3, 4), opinion("peer", 0.3, 3, 4))
    )
    assert judge(difference(variants=STEADY, departures=(tie,))).verdict is Verdict.NEAR_TIE
    judged = judge(difference(variants=STEADY, departures=(tie, wide)))
    assert judged.verdict is Verdict.FAULT and "token 3" in judged.reason


def test_drift_of_the_reference_excuses_no_other_text() -> None:
    """The reference drifts, and the subject's text is none of its variants."""
    assert judge(difference(subject=(5, 8, 2, 4), gap=0.5)).verdict is Verdict.FAULT


@pytest.mark.parametrize("variants", [STEADY, difference().variants])
def test_nan_is_a_fault(variants: tuple[Variant, ...]) -> None:
    assert judge(difference(variants=variants, gap=math.nan)).verdict is Verdict.FAULT
    silent = Noise(batch=math.nan, oracle=None, unit=1e-3)
    assert judge(difference(variants=STEADY, noise=silent)).verdict is Verdict.FAULT


def test_a_record_that_contradicts_itself_is_refused() -> None:
    wrong = Departure(position=2, subject=2, reference=9, opinions=(opinion(), opinion()))
    for change in (
        {"subject": ALONE},
        {"variants": (Variant(sizes=(2,), tokens=ALONE),)},
        {"variants": (*STEADY, Variant(sizes=(3,), tokens=LARGER))},
        {"departures": (wrong,)},
    ):
        with pytest.raises(ValidationError):
            TextDifference.model_validate(difference().model_dump() | change)


def test_a_text_that_ends_early_differs_where_it_ends() -> None:
    assert first_difference((5, 7), ALONE) == 2
    assert first_difference(ALONE, ALONE) is None


def test_it_travels_as_json_with_nan() -> None:
    found = difference(gap=math.nan)
    again = TextDifference.model_validate_json(found.model_dump_json())
    assert judge(again) == judge(found)
