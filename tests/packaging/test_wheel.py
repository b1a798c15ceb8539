from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "openengine_sidecar"
FOLDERS = ("actors", "launch", "messages", "proto", "supervision")


def tracked() -> list[Path]:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [Path(name) for name in listing.split("\0") if name and (ROOT / name).exists()]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZipFile]:
    source = tmp_path_factory.mktemp("source")
    for file in tracked():
        (source / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / file, source / file, follow_symlinks=False)
    built = tmp_path_factory.mktemp("built")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(built), str(source)]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    with ZipFile(next(built.glob("*.whl"))) as archive:
        yield archive


def contents(wheel: ZipFile) -> set[str]:
    return {name for name in wheel.namelist() if ".dist-info/" not in name}


def test_the_wheel_holds_what_git_does_and_nothing_else(wheel: ZipFile) -> None:
    from_folders = {f"{PACKAGE}/{file}" for file in tracked() if file.parts[0] in FOLDERS}
    from_src = {str(file.relative_to("src")) for file in tracked() if file.parts[0] == "src"}
    links = {f"{PACKAGE}/{folder}" for folder in FOLDERS}
    assert contents(wheel) == from_folders | from_src - links


def test_the_wheel_installs_one_package_only(wheel: ZipFile) -> None:
    assert {name.split("/")[0] for name in contents(wheel)} == {PACKAGE}


def test_the_wheel_carries_licence_and_command(wheel: ZipFile) -> None:
    names = wheel.namelist()
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    entry_points = next(name for name in names if name.endswith(".dist-info/entry_points.txt"))
    assert "openengine-sidecar = openengine_sidecar.launch.cli:main" in wheel.read(entry_points).decode()


def test_the_five_folders_are_links_into_the_package() -> None:
    for folder in FOLDERS:
        link = ROOT / "src" / PACKAGE / folder
        assert link.is_symlink()
        assert link.resolve() == ROOT / folder
