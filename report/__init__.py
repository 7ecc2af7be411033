"""What a person sees: tables on a terminal, plain text in a pipe, documents for programs.

`davylamp.report` is this package and a verb: `davylamp.report("results", "report.html")` writes the report of a folder.
"""

import sys
from pathlib import Path
from types import ModuleType


class _Verb(ModuleType):
    """A package that can be called: its name is that of the verb."""

    def __call__(self, folder: str | Path, path: str | Path = "report.html") -> Path:
        """Write the report of a results folder, one HTML file that needs nothing else; its path.

        Raises:
            Unavailable: if there is no finished cell in the folder, or the file cannot be written.
            MissingLibrary: without Matplotlib.
        """
        from .page.build import build_report, write_file

        write_file(build_report(folder), Path(path))
        return Path(path)


sys.modules[__name__].__class__ = _Verb
