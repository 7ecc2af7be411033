"""Results to be read, wherever they are: a folder, a bundle, or several of them as one."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ...errors import InvalidInput
from ..store.atomic_files import expand_path
from .gather import gather
from .merge import check_mergeable, join_parts, place_files
from .unpack import unpack_bundle


def is_bundle(path: str | Path) -> bool:
    """Whether this is the path of a bundle and not of a folder."""
    return Path(path).suffix.lower() == ".zip" and not expand_path(path).is_dir()


@contextlib.contextmanager
def open_results(*sources: str | Path) -> Iterator[Path]:
    """A results folder to read from, until the block ends.

    One folder is given as it is. A bundle is unpacked into a temporary folder, with all that `unpack_bundle` checks.
    Several become a temporary folder of links to their files; what each holds a part of is put together there.

    Args:
        sources: results folders and bundles, one at least.

    Raises:
        FoldersDisagree: if two of them say different things of one key.
        InvalidInput: if a bundle is refused, or, of several, a file is damaged.
        Unavailable: if one is not there.
    """
    if not sources:
        raise InvalidInput("expected a results folder, got none")
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
            yield folders[0]
            return
        gathered = check_mergeable(gather(folders))
        view = Path(place) / " + ".join(folder.name for folder in folders)[:150]
        view.mkdir()
        place_files(view, gathered, _point_to)
        join_parts(view)
        yield view


def _point_to(source: Path, new: Path) -> None:
    """A link to a file, or a copy where there are no links."""
    try:
        new.symlink_to(source.resolve())
    except OSError:
        shutil.copyfile(source, new)
