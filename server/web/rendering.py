"""Renders web pages from templates. Text is escaped, and control characters in it are replaced."""

import math
import time
import unicodedata
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ... import __version__
from ...report.page import build
from .request_context import SESSION, VISIT, RequestContext, set_cookie

_HERE = Path(__file__).parent
_STEERING = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")


def plain_text(text: Any) -> str:
    """Replace control and bidirectional characters in a text by U+FFFD. Line ends and tabs are kept."""
    return "".join(
        each if each in "\n\t" or unicodedata.category(each) not in _STEERING else "\N{REPLACEMENT CHARACTER}"
        for each in str(text)
    )


def plain_values(document: Any) -> Any:
    """Return a JSON document in which `plain_text` was applied to every text."""
    if isinstance(document, dict):
        return {plain_text(name): plain_values(value) for name, value in document.items()}
    if isinstance(document, (list, tuple)):
        return [plain_values(each) for each in document]
    return plain_text(document) if isinstance(document, str) else document


def render(visit: RequestContext, template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """Render a web page, and return the response with its cookies."""
    shared = {"viewer": visit.viewer, "mark": visit.csrf_token, "version": __version__, "path": visit.request.url.path}
    text = _environment().get_template(template).render(**shared, **values)
    response = HTMLResponse(text, status_code=status)
    if not visit.session and not visit.request.cookies.get(VISIT):
        set_cookie(visit, response, VISIT, visit.visit)
    if visit.request.cookies.get(SESSION) and not visit.session:
        response.delete_cookie(SESSION, path="/")
    return response


def redirect(path: str) -> Response:
    """Return a response that redirects the browser to a page of this server."""
    return RedirectResponse("/" + path.lstrip("/\\"), status_code=303)


@cache
def style() -> str:
    """Return the stylesheet of the web pages: the stylesheet of reports with additions."""
    shared = Path(build.__file__).with_name("style.css").read_text(encoding="utf-8")
    return shared + (_HERE / "server.css").read_text(encoding="utf-8")


@cache
def script() -> str:
    """Return the JavaScript that updates the page of a running task, and asks for confirmation before deletion."""
    return (_HERE / "server.js").read_text(encoding="utf-8")


def format_time(seconds: float) -> str:
    """Format a Unix timestamp as date and time in UTC; "" for 0."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds)) if seconds else ""


def format_duration(seconds: float) -> str:
    """Format a duration in seconds, such as "5 s", "3 min" or "2.0 h"."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def share(value: Any) -> str:
    """Format a proportion with three decimals, or "-" if undefined."""
    return "-" if value is None or math.isnan(value) else f"{float(value):.3f}"


def parameters(values: Any) -> str:
    """Format parameters of an attack in one line, such as "step_size=0.01 steps=10"."""
    return " ".join(f"{name}={value}" for name, value in sorted(values.items()))


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: (
            plain_text(value) if isinstance(value, str) and not hasattr(value, "__html__") else value
        ),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"when": format_time, "lasted": format_duration, "share": share, "parameters": parameters}
    made.filters["quoted"] = lambda text: quote(str(text), safe="")
    return made
