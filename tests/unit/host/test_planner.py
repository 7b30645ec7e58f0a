"""The order in which a plan's sessions start."""

import pytest

from kit.errors import UsageFault
from kit.host.planner import Selection, make_plan
from kit.profile import Profile, find_profile


def with_first(*names: str) -> Profile:
    return find_profile("cpu").model_copy(update={"first": names})


def test_what_takes_longest_starts_first_and_the_rest_keep_their_order() -> None:
    plain = [session.id for session in make_plan(with_first(), Selection(), "run").sessions]
    named = [session.id for session in make_plan(with_first("offline", "kernels-torch"), Selection(), "run").sessions]
    assert named[:2] == ["kernels-torch", "offline"]
    assert named[2:] == [name for name in plain if name not in named[:2]]


def test_a_selection_may_leave_it_out() -> None:
    plan = make_plan(with_first("offline"), Selection(batteries=("lora-logprob",)), "run")
    assert "offline" not in [session.id for session in plan.sessions]


def test_a_session_that_there_is_not_is_refused_with_the_near_one() -> None:
    with pytest.raises(UsageFault, match="key 'first': there is no session 'sglang-tiny-gptoss'") as refused:
        make_plan(with_first("sglang-tiny-gptoss"), Selection(), "run")
    assert "sglang-tiny-gpt-oss" in refused.value.remedy
