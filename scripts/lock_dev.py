"""Writes dev.lock: the tools of pyproject's extra ``dev``, resolved beside images/cpu.lock, with hashes.

Run it in the environment of a checkout: ``.venv/bin/python scripts/lock_dev.py``.
"""

import json
import tempfile
import tomllib
from pathlib import Path

from kit.host.lockfile import Pin, normalised, read_lock, replace_text
from kit.host.pip import run_pip
from kit.image import find_image

ROOT = Path(__file__).resolve().parent.parent
HEADER = "# Tools of pyproject's extra 'dev' that images/cpu.lock does not hold.\n# Made by scripts/lock_dev.py; not to be edited.\n"


def resolve(requirements: list[str], constraints: set[Pin]) -> set[Pin]:
    """Every wheel that the requirements need, where the constraints hold."""
    with tempfile.TemporaryDirectory() as folder:
        pins, report = Path(folder) / "constraints.txt", Path(folder) / "report.json"
        pins.write_text("".join(f"{pin.name}=={pin.version}\n" for pin in constraints))
        run_pip(
            *("install", "--dry-run", "--ignore-installed", "--quiet", "--only-binary=:all:"),
            *("--constraint", str(pins), "--report", str(report)),
            *requirements,
        )
        items = json.loads(report.read_text())["install"]
    return {
        Pin(
            normalised(item["metadata"]["name"]),
            item["metadata"]["version"],
            item["download_info"]["archive_info"]["hashes"]["sha256"],
        )
        for item in items
    }


def main() -> None:
    """Resolve and write."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    held = set(read_lock(find_image("cpu")))
    names = {pin.name for pin in held}
    pins = sorted(pin for pin in resolve(project["optional-dependencies"]["dev"], held) if pin.name not in names)
    lines = [f"{pin.name}=={pin.version} \\\n    --hash=sha256:{pin.sha256}\n" for pin in pins]
    replace_text(ROOT / "dev.lock", HEADER + "".join(lines))
    print(f"dev.lock: {len(pins)} wheels")


if __name__ == "__main__":
    main()
