"""The commands that show results: one HTML file, two folders side by side, a page that follows a run."""

from pathlib import Path
from typing import Annotated

import typer

from ..errors import InvalidInput
from .options import split_list

DEFAULT = "report.html"


def report_results(
    folders: Annotated[list[Path], typer.Argument(help="a results folder; or two: what moved from the first")],
    out: Annotated[Path, typer.Option("--out", "-o", help="the HTML file")] = Path(DEFAULT),
    bootstrap: Annotated[int, typer.Option(min=0, help="replicates of the intervals")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="of the resampling")] = 0,
) -> None:
    """Write one HTML file that opens without a network: verdict, rankings, agreement, curves, trust, provenance."""
    from ..engine.store.files import check_place
    from ..report.page.build import build_differences, build_report, write_file
    from ..report.text.console import make_console

    if len(folders) > 2:
        raise InvalidInput(f"expected one results folder, or two to compare, got {len(folders)}")
    if out.is_dir():
        raise InvalidInput(f"expected a file for -o, got the folder {out}")
    check_place(out)
    text = build_differences(*folders) if len(folders) == 2 else build_report(*folders, bootstrap=bootstrap, seed=seed)
    path = write_file(text, out)
    size = len(text.encode()) / 1e6
    make_console().print(f"{path}: {size:.1f} MB; it opens in a browser, without a network", highlight=False)


def serve_results(
    folder: Annotated[Path, typer.Argument(help="a results folder, also while `davylamp evaluate` fills it")],
    host: Annotated[
        str, typer.Option(help="address to listen at; other machines see it only if you say so")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free")] = 8000,
    allow_host: Annotated[list[str] | None, typer.Option(help="answer to this name, too (repeatable)")] = None,
) -> None:
    """Serve the report on this machine, read-only, live while an evaluation runs."""
    from ..report.page.live import serve
    from ..report.text.console import make_console

    console = make_console()
    serve(
        folder,
        host=host,
        port=port,
        names=split_list("--allow-host", allow_host) or (),
        started=lambda address: console.print(f"{address}   (stop with Ctrl-C)", highlight=False),
    )
