"""The web application of a server: web pages, JSON interface, error messages and limits on requests."""

from collections.abc import Iterable, Mapping
from functools import partial

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from sqlalchemy.exc import DataError, IntegrityError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as NoConnection
from starlette.exceptions import HTTPException

from ... import __version__
from ...adapters.http_limits import Application, Protected, Scope
from ...adapters.http_names import AllowedHosts
from ...errors import DavylampError, Unavailable
from ..accounts.audit import TooManyAttempts
from ..accounts.sessions import viewer_of_session, viewer_of_token
from ..components.registration import ForbiddenError, NotFoundError
from ..folder import ServerFolder
from . import account_pages, api, board_pages, component_pages, evaluations, task_pages
from .boards import Boards
from .rank_history import note_board
from .rendering import plain_text, render, script, style
from .request_context import SESSION, NoToken, Page, page_context

_AWAY = (OperationalError, InterfaceError, NoConnection)  # or locked for too long
_AGAIN = "the database is busy or unavailable; try again in a moment"
_UNSTORABLE = "the database cannot store a value: a text has a NUL or an unpaired surrogate, or a number is too large"
_FIXED: Mapping[type[Exception], tuple[int, str]] = {
    **dict.fromkeys((DataError, UnicodeEncodeError), (400, _UNSTORABLE)),
    IntegrityError: (409, "a simultaneous request made the same change; try again"),
    **dict.fromkeys(_AWAY, (503, _AGAIN)),
    Exception: (500, "internal error; see the server's log"),
}
_STATUS = ((NotFoundError, 404), (NoToken, 401), (ForbiddenError, 403), (TooManyAttempts, 429), (Unavailable, 503))


def make_pages(folder: ServerFolder) -> FastAPI:
    """Build the FastAPI application with all pages and the JSON interface, but without limits on requests."""
    about = "A server for adversarial robustness: components, tasks, leaderboards."
    made = FastAPI(
        title="davylamp",
        version=__version__,
        description=about,
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/v1/openapi.json",
    )
    made.state.folder, made.state.boards = folder, Boards(folder, partial(note_board, folder))
    made.state.reports = task_pages.TaskReports(folder)
    for module in (board_pages, evaluations, component_pages, task_pages, account_pages, api):
        made.include_router(module.router)
    _add_files(made)
    made.add_exception_handler(DavylampError, _explain)
    made.add_exception_handler(RequestValidationError, _explain_form)
    made.add_exception_handler(HTTPException, _explain_status)
    for kind, given in _FIXED.items():
        made.add_exception_handler(kind, partial(_explain_fixed, *given))
    return made


def make_application(folder: ServerFolder, *, host: str = "127.0.0.1", names: Iterable[str] = ()) -> Application:
    """Build the application that Uvicorn serves, with limits on host names and on the size of uploads.

    Args:
        folder: folder of the server.
        host: address at which the server listens.
        names: additional host names that requests may use, such as the name of a proxy.
    """
    largest = (folder.settings.largest << 20) + (1 << 20)  # includes the other form fields
    return Protected(make_pages(folder), AllowedHosts(host, names), largest, partial(_uploader, folder))


def _uploader(folder: ServerFolder, scope: Scope) -> str:
    """Return the name of the user who sent a request, if this request may upload a file; otherwise ""."""
    if scope["path"] not in ("/components/new", "/api/v1/components"):
        return ""
    request = Request({**scope, "app": None})
    kind, _, secret = request.headers.get("authorization", "").partition(" ")
    try:
        with folder.database.reading() as session:
            if kind.lower() == "bearer":
                viewer = viewer_of_token(session, secret.strip())
            else:
                viewer = viewer_of_session(session, request.cookies.get(SESSION, "")[:100])
    except _AWAY as error:
        raise Unavailable(_AGAIN) from error
    return viewer.name if viewer is not None and viewer.may_submit else ""


def _add_files(made: FastAPI) -> None:
    @made.get("/server.css", include_in_schema=False)
    def css() -> Response:
        return Response(style(), media_type="text/css")

    @made.get("/server.js", include_in_schema=False)
    def javascript() -> Response:
        return Response(script(), media_type="text/javascript")

    @made.get("/healthy", include_in_schema=False)
    def healthy() -> PlainTextResponse:
        return PlainTextResponse("ok")

    @made.get("/api", include_in_schema=False)
    def describe(visit: Page) -> HTMLResponse:
        calls = [
            {"path": path, "method": method.upper(), **call}
            for path, calls in made.openapi()["paths"].items()
            for method, call in calls.items()
        ]
        return render(visit, "interface.html", calls=calls)


def _explain(request: Request, error: Exception) -> Response:
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 400)
    place = str(request.app.state.folder.path)
    return _answer(request, status, str(error).replace(f"{place}/", "").replace(place, "the server's folder"))


def _explain_form(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first.get("loc", ())[1:])
    return _answer(request, 422, f"{where}: {first['msg'].removeprefix('Value error, ')}"[:500])


def _explain_status(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _answer(request, error.status_code, str(error.detail))


def _explain_fixed(status: int, line: str, request: Request, _: Exception) -> Response:
    return _answer(request, status, line)


def _answer(request: Request, status: int, line: str) -> Response:
    if request.url.path.startswith("/api/"):
        headers = {"www-authenticate": "Bearer"} if status == 401 else None
        return JSONResponse({"error": plain_text(line)}, status_code=status, headers=headers)
    try:
        return render(page_context(request), "error.html", status=status, line=line)
    except Exception:  # the database is unavailable: respond with a plain message
        return PlainTextResponse(plain_text(line), status_code=status)
