"""Commands for a server of a lab: they run workers, manage users and backups, and submit and fetch tasks."""

import json
import shlex
import sys
import threading
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import InvalidInput
from .options import Json, split_list

Folder = Annotated[Path, typer.Argument(help="the server's folder, as in `davylamp serve FOLDER --tasks`")]
DatabaseOption = Annotated[str, typer.Option(help="postgresql://... (default: SQLite in the folder)")]
Address = Annotated[
    str, typer.Option(help="http(s)://HOST (default: $DAVYLAMP_SERVER); the token is read from $DAVYLAMP_TOKEN")
]
NoSandbox = Annotated[
    bool, typer.Option("--no-sandbox", help="run and read users' files without a sandbox: only if you trust all users")
]


def start_server(
    folder: Path,
    host: str,
    port: int,
    names: list[str] | None,
    workers: int,
    database: str,
    *,
    trust: bool,
    proxy: bool,
) -> None:
    """Serve tasks, components and leaderboards (`davylamp serve FOLDER --tasks`)."""
    from ..report.text.console import make_console, print_error
    from ..server.folder import ServerFolder, Settings
    from ..server.web.run_server import WorkerProcesses, serve_tasks

    host = host.strip().removeprefix("[").removesuffix("]")
    opened = ServerFolder(folder, database, Settings(trust=trust))
    command = [sys.executable, "-m", "davylamp.cli", "server", "worker", str(opened.path), "--until-closed"]
    command += ["--no-sandbox"] if trust else []
    console = make_console()

    def started(address: str, admin: bool) -> None:
        console.print(f"{address}   (stop with Ctrl-C)", highlight=False)
        if not admin:
            print_error(
                f"- there is no admin yet; run davylamp server users add NAME {shlex.quote(str(folder))} --admin"
            )
        if trust:
            print_error("- users' files run without a sandbox (--no-sandbox)")

    processes = WorkerProcesses(command, workers, {"DAVYLAMP_DATABASE": database} if database else {})
    serve_tasks(
        opened,
        host=host,
        port=port,
        names=split_list("--allow-host", names) or [],
        workers=processes,
        started=started,
        proxy=proxy,
    )


def work(
    folder: Folder,
    database: Annotated[
        str, typer.Option(envvar="DAVYLAMP_DATABASE", help="postgresql://... (default: SQLite in the folder)")
    ] = "",
    executor: Annotated[str, typer.Option(help="executor of each task: local or ray")] = "local",
    workers: Annotated[int, typer.Option(min=1, help="number of processes of each task")] = 1,
    address: Annotated[str | None, typer.Option(help="address of a Ray cluster")] = None,
    device: Annotated[str, typer.Option(help="device: cpu, cuda, cuda:1, mps")] = "cpu",
    time_limit: Annotated[float, typer.Option(min=1, help="time limit of a task, in seconds")] = 86400.0,
    memory_limit: Annotated[
        float | None,
        typer.Option(min=0.5, help="memory limit of each user program, in GiB (default: a quarter of the machine's)"),
    ] = None,
    disk_limit: Annotated[float, typer.Option(min=0.1, help="size limit of a task's folder, in GiB")] = 20.0,
    no_sandbox: NoSandbox = False,
    until_closed: Annotated[
        bool, typer.Option("--until-closed", help="stop the worker when standard input is closed")
    ] = False,
) -> None:
    """Run a server's tasks. Several workers may run simultaneously, also on other machines with the same folder."""
    import signal

    from ..server.folder import ServerFolder, Settings
    from ..server.tasks.preparing import ExecutorSettings
    from ..server.tasks.sandboxed import TaskLimits
    from ..server.tasks.work import TaskWorker, WorkerSettings
    from ..server.web.run_server import end_with_parent

    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    if until_closed:
        end_with_parent(stopped)
    opened = ServerFolder(folder, database, Settings(trust=no_sandbox), create=False)
    where = ExecutorSettings(executor, workers, address, device)
    working = WorkerSettings(where, TaskLimits(time_limit, memory_limit, disk_limit), trust=no_sandbox)
    TaskWorker(opened, working, stopped.is_set).run()


def change_users(
    action: Annotated[str, typer.Argument(help="add, password (set a new one), lock, unlock, limit or list")],
    name: Annotated[str, typer.Argument(help="name of the user (with `list`: the server's folder)")],
    folder: Annotated[Path | None, typer.Argument(help="the server's folder")] = None,
    admin: Annotated[bool, typer.Option("--admin", help="add: make the user an admin")] = False,
    ask: Annotated[bool, typer.Option("--ask", help="ask for the password instead of generating one")] = False,
    hours: Annotated[
        float | None,
        typer.Option(min=0, help="add, limit: hours of computing in seven days (default: no limit)"),
    ] = None,
    database: DatabaseOption = "",
) -> None:
    """Add users of a server, including the first admin, and change passwords. A generated password is printed once."""
    from ..report.text.console import make_console
    from ..server.accounts.audit import Origin, note
    from ..server.accounts.users import add_user, change_password, find_user, generate_password, set_active, set_hours
    from ..server.folder import ServerFolder

    console = make_console()
    if action == "list":
        _list_users(ServerFolder(Path(name), database, create=False), console)
        return
    if action not in ("add", "password", "lock", "unlock", "limit") or folder is None:
        raise InvalidInput(
            f"expected users add|password|lock|unlock|limit NAME FOLDER or users list FOLDER, got {action!r}"
        )
    if hours is not None and action not in ("add", "limit"):
        raise InvalidInput(f"--hours can be used only with add or limit, got {action}")
    opened, password = ServerFolder(folder, database, create=action == "add"), ""
    if action in ("add", "password"):
        password = typer.prompt("password", hide_input=True, confirmation_prompt=True) if ask else generate_password()
    with opened.database.writing() as session:
        if action == "add":
            set_hours(add_user(session, opened.hasher, name, password, "admin" if admin else "user"), hours)
        elif action == "password":
            change_password(session, opened.hasher, find_user(session, name), password)
        elif action == "limit":
            set_hours(find_user(session, name), hours)
        else:
            set_active(session, find_user(session, name), active=action == "unlock")
        note(session, Origin("command line"), f"{action} user", name)
    console.print(f"{name}: {action}", highlight=False, markup=False)
    if password and not ask:
        console.print(f"password, shown this once: {password}", highlight=False, markup=False)


def back_up(
    folder: Folder,
    out: Annotated[Path, typer.Option("--out", "-o", help="file to write")] = Path("lab.tar.gz"),
    database: DatabaseOption = "",
) -> None:
    """Write a server's database, files, results and keys into one file. The server may be running."""
    from ..server.folder import ServerFolder
    from ..server.tasks.backup import back_up

    written = back_up(ServerFolder(folder, database, create=False), out)
    _say(f"{written}: {written.stat().st_size / 1e6:.1f} MB; keep it secret, because it contains the server's keys")


def restore(
    file: Annotated[Path, typer.Argument(help="a file of `davylamp server backup`")],
    folder: Annotated[Path, typer.Argument(help="the server's folder: empty or new")],
    database: Annotated[
        str, typer.Option(help="address of an empty database, postgresql://... (default: SQLite in the folder)")
    ] = "",
) -> None:
    """Restore a server's folder from a backup. The database may be of a different kind than the original one."""
    from ..server.tasks.backup import restore

    restored = restore(file, folder, database)
    _say(f"{restored.path}: restored; davylamp serve {shlex.quote(str(folder))} --tasks serves it")


def submit(
    what: Annotated[str, typer.Argument(help="task, model, attack, defence or data")],
    file: Annotated[
        Path | None, typer.Argument(help="file of the component, or TOML file with the settings of a task")
    ] = None,
    form: Annotated[str, typer.Option(help="kind of component: named, code, onnx, weights, npz, folder, url")] = "",
    entry: Annotated[str, typer.Option(help="name, function in the file, or architecture")] = "",
    name: Annotated[str, typer.Option(help="name of the component, or title of the task")] = "",
    version: Annotated[str, typer.Option(help="version of the component")] = "1",
    licence: Annotated[str, typer.Option(help="licence of the component")] = "",
    description: Annotated[str, typer.Option(help="description of the component")] = "",
    public: Annotated[bool, typer.Option("--public", help="make the component or task visible to all users")] = False,
    server: Address = "",
    as_json: Json = False,
) -> None:
    """Send a component or a task to a server."""
    from ..server.client.http_client import ServerClient

    client, seen = ServerClient(server), "public" if public else "private"
    if what == "task":
        from ..engine.plan.config_file import read_toml

        if file is None:
            raise InvalidInput(
                "a task needs a TOML file with `models`, `attacks` and `data`, each the number of a component"
            )
        body = {"title": name, "visibility": seen, **read_toml(file)}
        answer = client.ask("POST", "/tasks", body)
    elif what in _FORMS:
        form = form or _FORMS[what].get(file.suffix if file else "", "named")
        fields = {"kind": what, "form": form, "entry": entry, "name": name or (file.stem.lower() if file else "")}
        fields |= {"version": version, "licence": licence, "description": description, "visibility": seen}
        if file is not None and not file.is_file():
            raise InvalidInput(f"no such file: {file}")
        answer = client.send_file("/components", fields, file)
    else:
        raise InvalidInput(f"expected task, {', '.join(_FORMS)}, got {what!r}")
    if as_json:
        print(json.dumps(answer, indent=2))  # noqa: T201 - standard output is the product
        return
    _say(f"{what} {answer['id']}: {client.address}/{'tasks' if what == 'task' else 'components'}/{answer['id']}")


def list_tasks(
    number: Annotated[int | None, typer.Argument(help="show this task, with its log")] = None,
    state: Annotated[
        str, typer.Option(help="only tasks in this state: waiting, running, done, failed or cancelled")
    ] = "",
    cancel: Annotated[bool, typer.Option("--cancel", help="cancel this task")] = False,
    server: Address = "",
    as_json: Json = False,
) -> None:
    """List the tasks of a server with their progress, or show one task with its log."""
    from ..report.text.console import make_console, print_table
    from ..server.client.http_client import ServerClient

    client = ServerClient(server)
    if cancel:
        if number is None:
            raise InvalidInput("--cancel needs the number of a task")
        client.ask("POST", f"/tasks/{number}/cancel")
    tasks = [client.ask("GET", f"/tasks/{number}")] if number else client.ask("GET", "/tasks", state=state)
    if as_json:
        print(json.dumps(tasks[0] if number else tasks, indent=2))  # noqa: T201
        return
    columns = ["id", "owner", "state", "percent", "title", "message"]
    rows = [[task[column] for column in columns] for task in tasks]
    print_table(f"{client.address}: {len(rows)} tasks", columns, rows, make_console())


def fetch(
    what: Annotated[
        str, typer.Argument(help="NUMBER of a task (signed, one file), component:NUMBER, or cell:NUMBER for a run")
    ],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="file to write")] = None,
    server: Address = "",
) -> None:
    """Download from a server a finished task with all its results, the file of a component, or the record of a run."""
    from ..adapters.paths import check_output_path
    from ..server.client.http_client import ServerClient

    kind, _, text = what.rpartition(":")
    kind = kind or "task"
    if kind not in _FETCHED or not text.isdigit():
        raise InvalidInput(f"expected the NUMBER of a task, component:NUMBER, or cell:NUMBER for a run, got {what!r}")
    path, ending = _FETCHED[kind]
    path, target = path.format(text), out or Path(f"{kind}-{text}{ending}")
    check_output_path(target)
    client, checked = ServerClient(server), ""
    client.save(path, target)
    if kind == "task":
        checked = f"; davylamp server verify {shlex.quote(str(target))} --key {client.ask('GET', '/me')['public_key']}"
    _say(f"{target}: {target.stat().st_size} bytes{checked}")


def verify(
    file: Annotated[Path, typer.Argument(help="a task saved by `davylamp server fetch`")],
    key: Annotated[str, typer.Option(help="public key of the server, 64 hexadecimal digits (from `/api/v1/me`)")] = "",
    as_json: Json = False,
) -> None:
    """Verify the signature and the files of a fetched task. Without --key, the signer is not checked (exit code 2)."""
    from ..server.tasks.signing import verify_export

    manifest = verify_export(file, key)
    if as_json:
        print(json.dumps(manifest, indent=2))  # noqa: T201
    else:
        by = manifest["signed_by"] + ("" if key else ", a key that was not checked; pass the server's key with --key")
        _say(f"{file}: {len(manifest['cells'])} runs, {len(manifest['files'])} files as signed by {by}")
    if not key:
        raise typer.Exit(2)


# By kind: path of the request, and default suffix of the file.
_FETCHED = {
    "task": ("/tasks/{}/export", ".zip"),
    "component": ("/components/{}/file", ""),
    "cell": ("/cells/{}/file", ".parquet"),
}
_FORMS: dict[str, dict[str, str]] = {
    "model": {".py": "code", ".onnx": "onnx", ".pth": "weights", ".pt": "weights", ".safetensors": "weights"},
    "attack": {".py": "code"},
    "defence": {".py": "code"},
    "data": {".npz": "npz", ".zip": "folder"},
}


def _list_users(folder: Any, console: Any) -> None:
    from sqlalchemy import select

    from ..report.text.console import print_table
    from ..server.accounts.users import SYSTEM
    from ..server.database.records import UserRow
    from ..server.tasks.leases import list_spent

    with folder.database.reading() as session:
        users = session.scalars(select(UserRow).where(UserRow.name != SYSTEM).order_by(UserRow.name)).all()
        spent = list_spent(session)
    rows = [
        [user.name, user.role, "yes" if user.active else "no", f"{spent.get(user.id, 0) / 3600:.3g}", user.hours]
        for user in users
    ]
    columns = ["name", "role", "may sign in", "hours in 7 days", "of"]
    print_table(f"{len(rows)} users", columns, rows, console)


def _say(line: str) -> None:
    from ..report.text.console import make_console

    make_console().print(line, highlight=False, markup=False, soft_wrap=True)
