"""Opens results for reading: a results folder, a bundle, or several folders and bundles as one folder."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from ...errors import DavylampError, InvalidInput
from ..store.atomic_files import expand_path
from .gather import gather
from .merge import check_mergeable, join_parts, place_files
from .unpack import unpack_bundle


def is_bundle(path: str | Path) -> bool:
    """Return whether a path ends in ".zip" and is not a folder."""
    return Path(path).suffix.lower() == ".zip" and not expand_path(path).is_dir()


@contextlib.contextmanager
def open_results(*sources: str | Path) -> Iterator[Path]:
    """Open results for reading, and yield the path of a results folder that exists until the `with` block ends.

    The path of a single results folder is yielded directly. A bundle is validated and unpacked into a temporary folder
    by `unpack_bundle`. Several sources are combined in a temporary folder with links to their files, where the shards
    of each run are joined.

    Args:
        sources: at least one results folder or bundle.

    Raises:
        FoldersDisagree: If two sources have different records with the same key.
        InvalidInput: If a bundle is invalid, or if there are several sources and a file is damaged.
        Unavailable: If a source does not exist.
    """
    if not sources:
        raise InvalidInput("expected at least one results folder or bundle, got none")
    if len(sources) == 1 and not is_bundle(sources[0]):
        yield expand_path(sources[0])
        return
    with tempfile.TemporaryDirectory(prefix="davylamp-") as place:
        folders = []
        for number, source in enumerate(sources):
            folder = expand_path(source)
            if is_bundle(source):
                folder = Path(place) / str(number) / folder.stem
                folder.parent.mkdir()
                unpack_bundle(source, folder)
            folders.append(folder)
        if len(folders) == 1:
            with _named(folders[0], sources):
                yield folders[0]
            return
        gathered = check_mergeable(gather(folders))
        view = Path(place) / " + ".join(folder.name for folder in folders)[:150]
        view.mkdir()
        place_files(view, gathered, _point_to)
        join_parts(view)
        with _named(view, sources):
            yield view


@contextlib.contextmanager
def _named(folder: Path, sources: Sequence[str | Path]) -> Iterator[None]:
    """Replace the name of the temporary folder by the names of the sources in messages of errors in the block."""
    try:
        yield
    except DavylampError as error:
        name = " + ".join(map(str, sources))
        error.args = tuple(each.replace(str(folder), name) if isinstance(each, str) else each for each in error.args)
        raise


def _point_to(source: Path, new: Path) -> None:
    try:
        new.symlink_to(source.resolve())
    except OSError:
        shutil.copyfile(source, new)
