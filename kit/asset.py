"""Pinned assets: models, adapters and reference data of a hub, each a row of ``profiles/assets.toml``."""

from pathlib import Path, PurePosixPath
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from kit.errors import ImageFault
from kit.measurement import Record
from kit.names import unknown
from kit.paths import data_folder
from kit.toml import load_toml

ASSETS_FILE = "assets.toml"


def inside(path: str) -> str:
    """`path`, where it stays below the folder that it is joined to, on every system.

    Raises:
        ValueError: it does not, or it holds signs that do not print.
    """
    parts = PurePosixPath(path).parts
    if path != "/".join(parts) or path.startswith("/") or ".." in parts or not path.isprintable() or "\\" in path:
        raise ValueError("expected a path below the asset's folder, such as 'model.safetensors'")
    return path


class PinnedFile(Record):
    """One file of an asset.

    Attributes:
        path: in the repository, and below the asset's folder.
        size: in bytes.
        sha256: hex.
    """

    path: Annotated[str, Field(min_length=1, max_length=200), AfterValidator(inside)]
    size: int = Field(ge=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class Asset(Record):
    """One row.

    Attributes:
        name: how kit calls it.
        repository, type: where it lies on the hub.
        revision: full commit hash; empty: not locked yet.
        license: as its repository states it.
        gated: whether the hub gives it only to accounts that have accepted the licence.
        opt_in: needed only by cases that are asked for by name.
        allow: globs of the files that belong to it; ``*`` also matches a slash.
        used_by: which cases need it.
        files: what `allow` found at `revision`; written by ``kit assets lock``.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")
    repository: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*$")
    type: Literal["model", "dataset"]
    revision: str = Field(default="", pattern=r"^([0-9a-f]{40})?$")
    license: str = Field(min_length=1)
    gated: bool = False
    opt_in: bool = False
    allow: tuple[str, ...] = Field(min_length=1)
    used_by: str = Field(min_length=1)
    files: tuple[PinnedFile, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if bool(self.revision) != bool(self.files):
            raise ValueError(f"asset {self.name}: revision and files are both given or both empty")
        paths = [file.path for file in self.files]
        if twice := sorted({path for path in paths if paths.count(path) > 1}):
            raise ValueError(f"asset {self.name}: two files are called {twice[0]}")
        return self

    @property
    def locked(self) -> bool:
        """Whether revision and files are recorded."""
        return bool(self.revision)

    @property
    def size(self) -> int:
        """Bytes of all files; 0 where it is not locked."""
        return sum(file.size for file in self.files)

    def refuse_unlocked(self) -> None:
        """Accept only an asset whose revision and hashes are recorded.

        Raises:
            ImageFault: they are not.
        """
        if not self.locked:
            raise ImageFault(
                f"asset {self.name} is not locked", f"run 'kit assets lock {self.name}' where the hub can be reached"
            )


class Assets(Record):
    """All rows of a file; names are unique."""

    asset: tuple[Asset, ...] = ()

    @model_validator(mode="after")
    def _unique(self) -> Self:
        names = [asset.name for asset in self.asset]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two assets are called {twice[0]}")
        return self


def assets_file() -> Path:
    """Where kit's own rows stand."""
    return data_folder("profiles") / ASSETS_FILE


def load_assets(path: Path | None = None) -> dict[str, Asset]:
    """The assets of a file by name, by default ``profiles/assets.toml``.

    Raises:
        UsageFault: a damaged file, a wrong key, or a name that two rows claim.
    """
    return {asset.name: asset for asset in load_toml(path or assets_file(), Assets).asset}


def find_asset(name: str, path: Path | None = None) -> Asset:
    """The asset with this name, whatever its case.

    Raises:
        UsageFault: no such asset; the near matches are named.
    """
    assets = load_assets(path)
    if found := assets.get(name.casefold()):
        return found
    raise unknown("asset", name, assets)
