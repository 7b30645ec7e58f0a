"""What one process of the pool does: all cases about one kernel, so that Wave emits it once."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from kit.checks.outcome import CheckResult
from kit.offline import compiled, executed
from kit.offline.asked import Asked
from kit.offline.wave import diverted
from kit.offline.wave_library import WaveLaunchers
from kit.offline_spec import CompileKernel, ExecuteMlir


def answers(items: tuple[Asked, ...]) -> Iterator[CheckResult | Exception]:
    """The answers, in order; a case that goes wrong answers with its error."""
    first = items[0].spec
    with tempfile.TemporaryDirectory(prefix="kit-offline-") as name:
        folder = Path(name)
        if isinstance(first, CompileKernel) and first.library == "triton":
            for place, item in enumerate(items):
                assert isinstance(item.spec, CompileKernel)
                yield _tried(compiled.triton, item.spec, folder / str(place))
            return
        with diverted(first.architecture) as emitted:
            launchers = WaveLaunchers(emitted)
            for place, item in enumerate(items):
                launchers.faults = item.faults
                if isinstance(item.spec, ExecuteMlir):
                    yield _tried(executed.check, item.spec, launchers)
                else:
                    yield _tried(compiled.wave, item.spec, launchers, folder / str(place))


def _tried(work: object, *arguments: object) -> CheckResult | Exception:
    assert callable(work)
    try:
        result = work(*arguments)
    except Exception as error:
        return error
    assert isinstance(result, CheckResult)
    return result
