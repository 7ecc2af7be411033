"""The folder works alone, stays light, and its page is up to date."""

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import davylamp.metrics
from davylamp.metrics.__main__ import render

from .bare import PROJECT, link_required

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib

FOLDER = Path(davylamp.metrics.__file__).parent
FOREIGN = {
    "davylamp",
    "adv_lib",
    "art",
    "cleverhans",
    "foolbox",
    "pyautoattack",
    "secmlt",
    "torchattack",
    "torchattacks",
    "pyro",
    "ray",
    "typer",
    "pandas",
}
LATE = {"piq", "pywt", "scipy", "torchvision"}  # loaded by the functions that use them
ALLOWED = {"torch", "numpy", "scipy", "piq", "pywt"}
REQUIRED = {"torch", "numpy", "scipy", "piq", "pywavelets"}

SCRIPT = f"""
import runpy
import sys
import torch
before = set(sys.modules)
import metrics
loaded = {{name.partition(".")[0] for name in set(sys.modules) - before}}
assert not loaded & {FOREIGN | LATE}, loaded
assert len(metrics.METRICS) > 60

generator = torch.Generator().manual_seed(0)
logits = torch.randn(8, 10, generator=generator)
labels = logits.argmax(1)
assert metrics.misclassification_ratio(logits, -logits, labels) == 1
inputs = torch.rand(2, 3, 20, 20, generator=generator)
success = torch.tensor([True, True])
assert metrics.structural_similarity(inputs, inputs, success) > 0.999
assert metrics.low_frequency_distortion(inputs, 1 - inputs, wavelet="db4") > 0
assert metrics.multi_scale_gmsd(inputs, inputs, success) < 1e-6
assert metrics.imagenet_wup().shape == (1000, 1000)
assert metrics.half_distortion(torch.tensor([1.0, 2.0, 3.0])).value > 0
features = torch.nn.Sequential(*[
    torch.nn.Conv2d(i, o, 3, padding=1) if o else torch.nn.MaxPool2d(2)
    for i, o in zip(
        (3, 64, 64, 64, 128, 128, 128, 256, 256, 256, 256, 512, 512, 512, 512, 512, 512),
        (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512),
    )
])
assert abs(metrics.dists(inputs, inputs, success, features=features)) < 1e-6
assert not {{name.partition(".")[0] for name in sys.modules}} & {FOREIGN}
runpy.run_module("metrics", run_name="__main__")
"""


def run_alone(name, place, tmp_path):
    """Run the script on the package of a name in a folder, where nothing but what it requires can be imported."""
    libraries = tmp_path / "libraries"
    libraries.mkdir()
    link_required(libraries)
    paths = [str(place), str(libraries)]
    script = f"import sys\nsys.path[:0] = {paths!r}\n" + SCRIPT.replace("metrics", name)
    command = [sys.executable, "-I", "-S", "-c", script]  # neither the site's packages nor this folder
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert result.returncode == 0, result.stderr
    assert result.stdout == render()


@pytest.mark.parametrize("name", ["davylamp_metrics", "metrics"])
def test_it_works_with_what_it_requires_and_nothing_else(name, tmp_path):
    """As the distribution davylamp-metrics, and as a copy in another project."""
    place = tmp_path / "place"
    shutil.copytree(FOLDER, place / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "build"))
    run_alone(name, place, tmp_path)


def test_the_distribution_is_whole():
    assert PROJECT["project"]["version"] == davylamp.__version__
    assert {re.split(r"[<>=]", each)[0].lower() for each in PROJECT["project"]["dependencies"]} == REQUIRED
    every = tomllib.loads((FOLDER.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    assert {*PROJECT["project"]["dependencies"]} <= {*every}
    settings = PROJECT["tool"]["setuptools"]
    assert settings["package-dir"] == {"davylamp_metrics": "."}
    (patterns,) = settings["package-data"].values()
    packed = {path for pattern in patterns for path in FOLDER.glob(pattern)}
    others = {"LICENSE", "pyproject.toml"}
    files = {path for path in FOLDER.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    assert {path for path in files if ".egg-info" not in str(path)} - packed == {FOLDER / name for name in others}
    assert not [path for path in FOLDER.glob("*/") if path.name not in ("__pycache__", "data", "build")
                and path.suffix != ".egg-info"]  # fmt: skip
    assert (FOLDER / "LICENSE").read_text() == (FOLDER.parent / "LICENSE").read_text()


def imported(path):
    """Roots of what a file imports, wherever in it; relative imports as '.'."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level <= 1, f"{path.name} reaches out of the folder"
            yield "." if node.level else (node.module or "").partition(".")[0]


def test_nothing_else_is_imported():
    files = sorted(FOLDER.glob("*.py"))
    assert len(files) > 15
    foreign = {root for path in files for root in imported(path)} - ALLOWED - {"."} - set(sys.stdlib_module_names)
    assert not foreign


def test_the_table_has_a_line_for_every_metric():
    lines = render().splitlines()
    for symbol, record in davylamp.metrics.METRICS.items():
        (line,) = [line for line in lines if line.startswith(f"| {symbol} | `{record.function.__name__}` |")]
        assert record.meaning in line
        assert record.source in line


def test_the_example_of_the_page_runs():
    example = (FOLDER / "README.md").read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]
    names = {}
    exec(example.replace("from davylamp_metrics", "from davylamp.metrics"), names)
    assert names["values"].shape == (8,)
