"""What is declared is what is there: packages, extras, names at the root."""

import re
import sys
from pathlib import Path

import pytest

import davylamp

ROOT = Path(__file__).parent.parent
RECIPE = ROOT / "recipe/recipe.yaml"
CONDA = {"torch": "pytorch"}  # packages that have another name there

tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has no TOML reader; 3.11 and later check this")
yaml = pytest.importorskip("yaml")
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


def test_the_conda_recipe_requires_what_the_wheel_requires():
    recipe, project = yaml.safe_load(RECIPE.read_text(encoding="utf-8")), PROJECT["project"]
    assert recipe["context"]["version"] == davylamp.__version__
    assert recipe["context"]["python_min"] == project["requires-python"].removeprefix(">=")
    assert recipe["about"]["summary"] == project["description"]
    assert recipe["about"]["license"] == project["license"]
    (entry,) = recipe["build"]["python"]["entry_points"]
    command, function = entry.split(" = ")
    assert project["scripts"] == {command: function}
    wanted = set()
    for line in project["dependencies"]:  # the one for old Pythons, too: the package is for all of them
        name, bound = re.split(r"(?=>)", line.split(";")[0].strip().lower())
        wanted.add((CONDA.get(name, name), bound))
    assert {tuple(line.split()) for line in recipe["requirements"]["run"][1:]} == wanted


def test_the_conda_recipe_renders():
    rattler_build = pytest.importorskip("rattler_build")
    (variant,) = rattler_build.Stage0Recipe.from_file(str(RECIPE)).render()
    assert davylamp.__version__ in str(variant)


def test_what_the_quickstart_needs_is_required_without_an_extra():
    """`.ci/installed` runs it with nothing else; this says at once what is missing."""
    from davylamp.adapters.catalogue.lookup import find_library
    from davylamp.commands.quickstart import LIBRARIES

    required = {re.split("[>;]", line)[0] for line in PROJECT["project"]["dependencies"]}
    offered = [name for name in LIBRARIES if find_library(name).distribution in required]
    assert len(offered) >= 3
    assert {"scikit-learn", "matplotlib"} <= required  # its images, and the drawings of its page
