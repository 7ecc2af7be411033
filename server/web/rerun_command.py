"""The command that repeats a run of a task on a user's own machine."""

import shlex

from ...engine.attack_run import AttackRun
from ...engine.plan.config_file import write_config
from ...engine.plan.rerun import configs_of
from ...engine.store.store import DamagedRecordError, ResultsStore
from ...errors import DavylampError
from ..database.records import CellRow
from ..folder import ServerFolder


def rerun_command(folder: ServerFolder, row: CellRow) -> tuple[str, str]:
    """Return the command that repeats a run, and the same settings as a TOML file for `davylamp evaluate`.

    Files of components have the names OWNER/KIND-NAME-VERSION/FILE in the command and the TOML file.

    Returns:
        The command and the content of the TOML file. Both are "" if the results of the run cannot be read.
    """
    try:
        record = ResultsStore(folder.task(row.task_id) / "results", create=False).read("cells", row.key)
        cell = AttackRun.from_record(record.meta)
        (config,) = configs_of([cell])
        return _line(cell), write_config(config)
    except (DamagedRecordError, DavylampError, FileNotFoundError, KeyError, TypeError, ValueError):
        return "", ""


def _line(cell: AttackRun) -> str:
    if cell.search.kind == "worst-case":  # parameters of several attacks need the file
        return "davylamp evaluate cell.toml -o again"
    threat, subject = cell.as_planned.threat_model, cell.subject
    options: list[tuple[str, object]] = [("models", subject.model), ("attacks", cell.attack), ("norm", threat.norm)]
    if threat.epsilon is not None:
        options.append(("epsilon", threat.epsilon))
    if cell.target:
        options.append(("target", cell.target))
    options += [("param", f"{name}={value}") for name, value in cell.parameters.items()]
    options += [("data", subject.data), ("limit", subject.images), ("seed", cell.seed)]
    words = [word for name, value in options for word in (f"--{name}", str(value))]
    flags = ["--defaults", *(["--eight-bit"] if cell.pixels else [])]
    return shlex.join(["davylamp", "evaluate", *words, *flags, "-o", "again"])
