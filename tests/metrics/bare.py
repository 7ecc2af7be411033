"""A folder with what davylamp-metrics requires and nothing else: `python tests/metrics/bare.py FOLDER` fills it.

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

PROJECT = tomllib.loads((Path(__file__).parents[2] / "metrics" / "pyproject.toml").read_text(encoding="utf-8"))


def required():
    """All distributions that the metrics require, directly or not, by normalised name."""
    known, left = {}, [Requirement(text) for text in PROJECT["project"]["dependencies"]]
    while left:
        wanted = left.pop()
        name = re.sub(r"[-_.]+", "-", wanted.name).lower()
        if name in known:
            continue
        known[name] = distribution(wanted.name)
        further = map(Requirement, known[name].requires or ())
        left += [each for each in further if each.marker is None or each.marker.evaluate({"extra": ""})]
    return known


def link_required(folder):
    """Link into a folder what stands at the top of each of these distributions."""
    for each in required().values():
        for top in {file.parts[0] for file in each.files if ".." not in file.parts and file.suffix != ".pth"}:
            link = folder / top
            if not link.exists():
                link.symlink_to(Path(each.locate_file(top)).resolve())


if __name__ == "__main__":
    link_required(Path(sys.argv[1]))
