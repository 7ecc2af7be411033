"""A folder with what a project requires and nothing else: `python tests/metrics/bare.py FOLDER PYPROJECT` fills it.

What stands in this environment is linked, not installed anew, which would take minutes and a network.
"""

import re
import sys
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib

ROOT = Path(__file__).parents[2]


def read_project(path):
    """Read a pyproject.toml."""
    return tomllib.loads(Path(path).read_text(encoding="utf-8"))


PROJECT = read_project(ROOT / "metrics" / "pyproject.toml")


def required(project):
    """All distributions that a project requires, directly or not, by normalised name."""
    known, done, left = {}, set(), [Requirement(text) for text in project["project"]["dependencies"]]
    while left:
        wanted = left.pop()
        name = re.sub(r"[-_.]+", "-", wanted.name).lower()
        extras = {"", *wanted.extras}
        is_other = wanted.marker and not any(wanted.marker.evaluate({"extra": extra}) for extra in extras)
        if is_other or (name, frozenset(extras)) in done:
            continue
        done.add((name, frozenset(extras)))
        known[name] = distribution(wanted.name)
        assert wanted.specifier.contains(known[name].version, prereleases=True), (str(wanted), known[name].version)
        for each in map(Requirement, known[name].requires or ()):
            if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in extras):
                each.marker = None
                left.append(each)
    return known


def link_required(folder, project=PROJECT):
    """Link into a folder what stands at the top of each of these distributions."""
    for each in required(project).values():
        for top in {file.parts[0] for file in each.files if ".." not in file.parts and file.suffix != ".pth"}:
            link = folder / top
            if not link.exists():
                link.symlink_to(Path(each.locate_file(top)).resolve())


if __name__ == "__main__":
    link_required(Path(sys.argv[1]), read_project(sys.argv[2]))
