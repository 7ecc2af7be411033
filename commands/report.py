"""Commands that present results: an HTML report, a comparison of two folders, a served page."""

from pathlib import Path
from typing import Annotated

import typer

from ..errors import InvalidInput
from .merge import open_results_arguments
from .options import split_list

DEFAULT = "report.html"


def report_results(
    context: typer.Context,
    folders: Annotated[
        list[Path],
        typer.Argument(help="a results folder or BUNDLE.zip; two are compared, unless --merge is given"),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="HTML file to write")] = Path(DEFAULT),
    bootstrap: Annotated[int, typer.Option(min=0, help="bootstrap replicates")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="random seed of the bootstrap")] = 0,
    merge: Annotated[bool, typer.Option("--merge", help="combine the results of all folders on one page")] = False,
) -> None:
    """Write the results of a folder as one HTML page, which opens without a network."""
    from ..engine.store.atomic_files import check_output_path
    from ..report.page.build import build_differences, build_report, write_file
    from ..report.text.console import make_console

    if len(folders) > 2 and not merge:
        raise InvalidInput(f"expected one results folder, two to compare, or --merge, got {len(folders)}")
    if out.is_dir():
        raise InvalidInput(f"expected a file for -o, got the folder {out}")
    check_output_path(out)
    if merge or len(folders) == 1:
        text = build_report(open_results_arguments(context, folders), bootstrap=bootstrap, seed=seed)
    else:
        text = build_differences(*(open_results_arguments(context, [folder]) for folder in folders))
    path = write_file(text, out)
    size = len(text.encode()) / 1e6
    make_console().print(f"{path}: {size:.1f} MB; open it in a browser, no network needed", highlight=False)


def serve_results(
    folder: Annotated[
        Path,
        typer.Argument(help="a results folder, also while `davylamp evaluate` runs; with --tasks, the server's folder"),
    ],
    host: Annotated[str, typer.Option(help="address to listen on; only this machine by default")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="port; 0 for any free port")] = 8000,
    allow_host: Annotated[list[str] | None, typer.Option(help="also accept this host name (repeatable)")] = None,
    tasks: Annotated[
        bool, typer.Option("--tasks", help="run a server for a lab, with accounts, components, tasks and leaderboards")
    ] = False,
    workers: Annotated[int, typer.Option(min=0, help="--tasks: tasks run in parallel on this machine")] = 1,
    database: Annotated[str, typer.Option(help="--tasks: postgresql://... (default: SQLite in the folder)")] = "",
    no_sandbox: Annotated[
        bool, typer.Option("--no-sandbox", help="--tasks: run users' files without a sandbox")
    ] = False,
    proxy: Annotated[
        bool,
        typer.Option("--proxy", help="--tasks: behind a reverse proxy on this machine, which sets X-Forwarded-For"),
    ] = False,
) -> None:
    """Serve the report of a folder over HTTP on this machine. With --tasks, run a server for a lab."""
    if tasks:
        from .server import start_server

        start_server(folder, host, port, allow_host, workers, database, trust=no_sandbox, proxy=proxy)
        return
    if workers != 1 or database or no_sandbox or proxy:
        raise InvalidInput("--workers, --database, --no-sandbox and --proxy need --tasks")
    from ..report.page.served import serve
    from ..report.text.console import make_console

    console = make_console()
    serve(
        folder,
        host=host,
        port=port,
        names=split_list("--allow-host", allow_host) or (),
        started=lambda address: console.print(f"{address}   (stop with Ctrl-C)", highlight=False),
    )
