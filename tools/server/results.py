"""Updates `RESULTS.md`, which has a part for each benchmark and database. Each run replaces its own part."""

import os
import platform
import re
import time
from collections.abc import Sequence
from pathlib import Path

RESULTS = Path(__file__).with_name("RESULTS.md")
_HEAD = """# What a server stands

Each part is written by the command in it and says when and where it was measured; do not edit. "Met" and "missed" are
about the goals of the server: p95 of a page at most 300 ms on two cores without an error; no task lost, none run twice.
"""


def write_part(title: str, command: str, lines: Sequence[str], *, is_met: bool, path: Path = RESULTS) -> None:
    """Replace one part of the page, or add it.

    Args:
        title: title of the part: the benchmark and its database.
        command: command that was run.
        lines: results in Markdown.
        is_met: whether the goal was met.
        path: path of the page.
    """
    before = path.read_text(encoding="utf-8") if path.is_file() else _HEAD
    parts = {part.partition("\n")[0]: part for part in re.split(r"^## ", before, flags=re.MULTILINE)[1:]}
    about = [f"{time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}, {machine()}.", f"`{command}`: goal "]
    about[1] += "met." if is_met else "MISSED."
    parts[title] = "\n".join([title, "", " ".join(about), "", *lines, ""])
    path.write_text(_HEAD + "".join(f"\n## {parts[name].rstrip()}\n" for name in sorted(parts)), encoding="utf-8")


def machine() -> str:
    """Describe this machine: processor, cores, Python, and the load of the last minutes."""
    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    text = info.read_text(encoding="utf-8") if info.is_file() else ""
    if matched := re.search(r"^model name\s*: (.+)$", text, re.MULTILINE):
        name = matched[1].strip()
    load = f", load {os.getloadavg()[1]:.1f} in the last five minutes" if hasattr(os, "getloadavg") else ""
    return f"{name}, {os.cpu_count()} cores, Python {platform.python_version()}{load}"


def database_name(address: str) -> str:
    """Return the display name of a database."""
    return "PostgreSQL" if address else "SQLite"
