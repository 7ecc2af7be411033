"""What is declared is what is there: packages, extras, names at the root."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has no TOML reader; 3.11 and later check this")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_every_package_folder_is_listed_but_the_developers_tools():
    top = [folder for folder in ROOT.iterdir() if folder.is_dir() and folder.name not in ("tests", "build", "tools")]
    top = [folder for folder in top if not folder.name.startswith(".")]  # virtual environments
    folders = {path.parent.relative_to(ROOT) for folder in top for path in folder.rglob("__init__.py")}
    listed = set(PROJECT["tool"]["setuptools"]["packages"])
    assert listed == {"davylamp"} | {f"davylamp.{'.'.join(folder.parts)}" for folder in folders}


def test_every_data_file_of_a_package_is_shipped():
    data = PROJECT["tool"]["setuptools"]["package-data"]
    for package in PROJECT["tool"]["setuptools"]["packages"]:
        folder = ROOT.joinpath(*package.split(".")[1:])
        patterns = data.get(package, [])
        shipped = {path for pattern in patterns for path in folder.glob(pattern)}
        for path in folder.rglob("*") if package == "davylamp.metrics" else []:
            of_alone = path.name in ("LICENSE", "pyproject.toml") or ".egg-info" in str(path)  # of the metrics alone
            if path.is_file() and path.suffix not in (".py", ".pyc") and not of_alone:
                assert path in shipped, path


def test_no_root_name_shadows_a_module():
    names = {path.stem for path in ROOT.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert not names & set(sys.stdlib_module_names)


def test_every_dependency_has_a_lower_bound():
    project = PROJECT["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    for requirement in (line for group in groups for line in group if not line.startswith("davylamp[")):
        assert re.search(r">=\d", requirement), requirement


def test_the_extras_that_errors_name_exist():
    extras = set(PROJECT["project"]["optional-dependencies"])
    assert {"art", "foolbox", "torchattacks", "demo", "ray", "all", "test"} <= extras
