"""A self-test as a run: the same image, assets, worker and verdicts, with the cases of `kit.selftest.choice`."""

from dataclasses import replace

from kit.host.run import Prepared, with_inputs
from kit.selftest.choice import Choice, selftest_plan


def selftest_of(prepared: Prepared, choice: Choice) -> Prepared:
    """The run of a profile, with the plan of a self-test in place of its own.

    Raises:
        UsageFault: see `selftest_plan`.
    """
    plan = selftest_plan(prepared.profile, prepared.waivers, choice, prepared.plan.run_id)
    return replace(prepared, plan=with_inputs(plan, prepared.profile, prepared.waivers, prepared.mode))
