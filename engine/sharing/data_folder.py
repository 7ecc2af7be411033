"""A results folder as a data set of Hugging Face's layout: a card with front matter, Parquet files, their metadata."""

from pathlib import Path

from ...errors import Unavailable, Unsupported
from ..store.files import replace_file
from .bundle import describe_files, share_tables
from .describe import Terms
from .merge import check_target


def write_data_folder(folder: str | Path, path: str | Path, *, terms: Terms | None = None) -> list[Path]:
    """Write `README.md`, `LICENSE.txt`, `croissant.json` and `data/*.parquet`; the records themselves stay behind.

    Args:
        folder: made by `davylamp evaluate`.
        path: a new folder, or an empty one.
        terms: licence, creator, name and description; None: nothing is stated, and the card says so.

    Returns:
        The files.

    Raises:
        Unsupported: if there is nothing to write.
        Unavailable: if there is no such folder, or the files cannot be written.
    """
    shared = share_tables(folder, terms or Terms())
    if not shared.tables:
        raise Unsupported(f"expected cells in {folder}, got none")
    target = check_target(path)
    try:
        (target / "data").mkdir(parents=True, exist_ok=True)
        for name, content in describe_files(shared).items():
            replace_file(target / name, lambda draft, content=content: draft.write_bytes(content))
    except OSError as error:
        raise Unavailable(f"could not write {path} ({error.strerror or error}); choose another with -o") from error
    return [target / name for name in sorted(describe_files(shared))]
