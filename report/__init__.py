"""Command output: tables for terminals, plain text for pipes, and documents for programs.

`davylamp.report` is a package and can also be called as a function: `davylamp.report("results", "report.html")` writes
the report.
"""

import sys
from pathlib import Path
from types import ModuleType


class _Verb(ModuleType):
    """Make the package callable, because it has the same name as the function."""

    def __call__(self, folder: str | Path, path: str | Path = "report.html") -> Path:
        """Write the report of a results folder as one self-contained HTML file, and return its path.

        Raises:
            Unavailable: If the folder has no finished run, or the file cannot be written.
            MissingLibrary: If Matplotlib is not installed.
        """
        from .page.build import build_report, write_file

        write_file(build_report(folder), Path(path))
        return Path(path)


sys.modules[__name__].__class__ = _Verb
