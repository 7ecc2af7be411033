"""Output of davylamp: tables for terminals, plain text for pipes, documents for programs, and HTML reports.

`davylamp.report` is a package and can also be called as a function: `davylamp.report("results", "report.html")` writes
the report.
"""

import sys
from os import PathLike
from pathlib import Path
from types import ModuleType


class _Verb(ModuleType):
    """Module type that makes the package callable.

    The package has the same name as the function that writes the report.
    """

    def __call__(self, folder: str | PathLike[str], path: str | Path = "report.html") -> Path:
        """Write the report of a results folder as one self-contained HTML file, and return the path of the file.

        Args:
            folder: results folder.
            path: file to write. An existing file is replaced.

        Raises:
            Unavailable: If the folder has no finished run, or the file cannot be written.
            MissingLibrary: If Matplotlib is not installed.
        """
        from .page.build import build_report, write_file

        write_file(build_report(folder), Path(path))
        return Path(path)


sys.modules[__name__].__class__ = _Verb
