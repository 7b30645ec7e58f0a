"""Real models of a plan and the cache: skipped with what to do in mode `ci`, refused in mode `qualify`, never in silence."""

from pathlib import Path

import pytest

from kit.asset import Asset, PinnedFile, load_assets
from kit.errors import EnvironmentFault, ExitCode, ImageFault
from kit.host.asset_cache import AssetFolder
from kit.host.pinned import pinned_folder, read_pinned, without_absent_assets
from kit.host.planner import Selection, make_plan
from kit.plan import PinnedFolder, PinnedModelSession, Plan
from kit.profile import find_profile
from kit.results.verify import verify
from kit.subjects import Workspace
from tests.hub_server import sha256
from tests.hub_stage import refused
from tests.unit.results.runs import Staged

CASE = "lora-logprob/qwen3-8b/trainer-kl"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
CONTENT = b"not a model"


def asset(name: str, repository: str) -> Asset:
    return Asset(
        name=name,
        repository=repository,
        type="model",
        revision=COMMIT,
        license="mit",
        allow=("*",),
        used_by="a test",
        files=(PinnedFile(path="weights", size=len(CONTENT), sha256=sha256(CONTENT)),),
    )


LOCKED = {a.name: a for a in (asset("qwen3-8b", "Qwen/Qwen3-8B"), asset("lora-diff-qwen3-8b", "someone/adapter"))}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def locked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kit.batteries.lora_models.load_assets", lambda: load_assets() | LOCKED)
    monkeypatch.setattr("kit.host.asset_cache.find_asset", lambda name, path=None: LOCKED[name])


def fetched(*names: str) -> None:
    for name in names:
        place = AssetFolder(LOCKED[name])
        place.files.mkdir(parents=True)
        (place.files / "weights").write_bytes(CONTENT)
        place.write_marker()


def plan(profile: str = "h200") -> Plan:
    return make_plan(find_profile(profile), Selection(batteries=("lora-logprob",)), "x")


def skip_of(planned: Plan) -> str | None:
    return next(case.skip for case in planned.cases if case.id == CASE)


def test_an_asset_that_is_not_locked_skips_its_case_and_no_other_in_ci() -> None:
    before, after = plan(), without_absent_assets(plan())
    assert "kit assets lock qwen3-8b" in (skip_of(after) or "")
    assert "kit assets lock lora-diff-qwen3-8b" in (skip_of(after) or "")
    assert [case.id for case in after.cases] == [case.id for case in before.cases]
    changed = [case.id for case, was in zip(after.cases, before.cases, strict=True) if case != was]
    assert changed == [CASE]


def test_an_asset_that_is_not_fetched_names_the_command(locked: None) -> None:
    fetched("qwen3-8b")
    skip = skip_of(without_absent_assets(plan())) or ""
    assert "kit assets fetch lora-diff-qwen3-8b" in skip and "fetch qwen3-8b" not in skip


def test_what_was_fetched_runs_and_is_all_that_the_worker_sees(locked: None, cache: Path) -> None:
    fetched(*LOCKED)
    planned = without_absent_assets(plan())
    assert skip_of(planned) is None
    assert pinned_folder(planned) == cache / "assets"
    for pinned in planned.pinned:
        assert (cache / "assets" / pinned.folder / "weights").read_bytes() == CONTENT
        assert pinned.files == LOCKED[pinned.name].files


def test_a_plan_whose_real_models_are_skipped_mounts_nothing() -> None:
    assert pinned_folder(without_absent_assets(plan())) is None
    assert pinned_folder(plan("cpu")) is None


def test_qualify_refuses_what_is_not_locked_or_not_fetched(locked: None, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    refused(lambda: read_pinned(plan(), said.append), ImageFault, ExitCode.IMAGE, "kit assets fetch")
    unlocked = {name: a.model_copy(update={"revision": "", "files": ()}) for name, a in LOCKED.items()}
    monkeypatch.setattr("kit.host.asset_cache.find_asset", lambda name, path=None: unlocked[name])
    refused(lambda: read_pinned(plan(), said.append), ImageFault, ExitCode.IMAGE, "is not locked", "kit assets lock")
    assert said == []


def test_qualify_reads_every_file_once_and_names_the_changed_one(locked: None) -> None:
    fetched(*LOCKED)
    said: list[str] = []
    read_pinned(plan(), said.append)
    assert len(said) == 1
    place = AssetFolder(LOCKED["qwen3-8b"])
    (place.files / "weights").write_bytes(CONTENT[::-1])
    place.write_marker()  # as a hand would that wants it to look right
    refused(lambda: read_pinned(plan(), said.append), ImageFault, ExitCode.IMAGE, "weights", "SHA-256")


@pytest.mark.parametrize("damage", ["missing", "longer"])
def test_the_worker_refuses_a_file_that_is_gone_or_has_another_size(tmp_path: Path, damage: str) -> None:
    pytest.importorskip("torch")
    from kit.subjects.pinned_model import folder_of

    pinned = PinnedFolder(name="a", revision=COMMIT, files=(PinnedFile(path="w", size=1, sha256="0" * 64),))
    file = tmp_path / pinned.folder / "w"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"1")
    workspace = Workspace(tmp_path, tmp_path, pinned=tmp_path)
    assert folder_of(pinned, workspace) == file.parent
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(b"12")
    with pytest.raises(EnvironmentFault, match=r"asset a: w .*kit assets verify a"):
        folder_of(pinned, workspace)


def test_the_engine_gets_what_upstream_gives_it_and_no_tokenizer() -> None:
    pytest.importorskip("torch")
    from kit.subjects.pinned_model import engine_arguments

    (session,) = [s.spec for s in plan().sessions if isinstance(s.spec, PinnedModelSession)]
    arguments = engine_arguments(session, Path("/m"), Path("/a"))
    assert {name: arguments[name] for name in ("tp_size", "max_lora_rank", "lora_backend")} == {
        "tp_size": 1, "max_lora_rank": 32, "lora_backend": "triton",
    }  # fmt: skip
    assert (arguments["model_path"], arguments["lora_paths"]) == ("/m", ["adapter=/a"])
    assert arguments["enable_lora"] and arguments["skip_tokenizer_init"]
    ours = {"model_path", "enable_lora", "lora_paths", "skip_tokenizer_init", "random_seed", "log_level"}
    assert set(arguments) - set(session.engine) == ours


def test_a_run_that_lacked_the_weights_is_believed_and_told(tmp_path: Path) -> None:
    class Lacking(Staged):
        def plan(self) -> Plan:
            return without_absent_assets(super().plan())

    staged = Lacking(profile=find_profile("h200"))
    staged.write(tmp_path / "run")
    told = verify(tmp_path / "run", "h200")
    assert told.refusals == ()
    assert any(CASE in note and "kit assets lock qwen3-8b" in note for note in told.notes)


def test_any_other_case_that_a_plan_skips_is_not_believed(tmp_path: Path) -> None:
    class Skipping(Staged):
        def plan(self) -> Plan:
            planned = super().plan()
            first = planned.cases[0].model_copy(update={"skip": "it would be red"})
            return planned.model_copy(update={"cases": (first, *planned.cases[1:])})

    staged = Skipping()
    staged.write(tmp_path / "run")
    assert any("is not the one that the profile demands" in text for text in verify(tmp_path / "run").refusals)
