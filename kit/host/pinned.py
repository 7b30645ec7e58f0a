"""The pinned assets of a plan: what cannot be used here is told before anything starts, and never in silence."""

from collections.abc import Callable
from pathlib import Path

from kit.host.asset_cache import asset_folder, assets_home, require_assets
from kit.plan import OF_PINNED, Case, Plan
from kit.results.model import Mode


def without_absent_assets(plan: Plan) -> Plan:
    """The plan as mode `ci` runs it: cases whose assets are not there are skipped, each with what to do. No file is read."""
    absent = require_assets((asset.name for asset in plan.pinned), Mode.CI).absent
    needed = {s.id: [a.name for a in s.spec.assets] for s in plan.sessions if isinstance(s.spec, OF_PINNED)}

    def judged(case: Case) -> Case:
        why = [absent[name] for name in needed.get(case.session, ()) if name in absent]
        return case.model_copy(update={"skip": "; ".join(why)}) if why and case.skip is None else case

    return plan.model_copy(update={"cases": tuple(judged(case) for case in plan.cases)})


def read_pinned(plan: Plan, tell: Callable[[str], None]) -> None:
    """Read every file of the pinned assets and hold it against its SHA-256, as mode `qualify` demands.

    This is the only time that a run reads them all: the worker looks at presence and size.

    Raises:
        ImageFault: an asset is not locked, not fetched or not verified, or a file is missing, changed, or not part of it.
    """
    for asset in plan.pinned:
        asset_folder(asset.name)
    if plan.pinned:
        size = sum(file.size for asset in plan.pinned for file in asset.files)
        tell(f"checking {size / 1e9:,.1f} GB of pinned assets against their SHA-256")
        require_assets((asset.name for asset in plan.pinned), Mode.QUALIFY)


def pinned_folder(plan: Plan) -> Path | None:
    """The folder below which the pinned assets of a plan lie; None where it needs none."""
    return assets_home() if plan.pinned else None
