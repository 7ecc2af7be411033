"""Who asks: by the cookie of a session or by a token; and whether a form came from one of our pages."""

import secrets
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Form, Request

from ..accounts.audit import Origin
from ..accounts.sessions import csrf_token, is_form_mark, viewer_of_session, viewer_of_token
from ..components.registration import ForbiddenError
from ..database.permissions import VISITOR, Scope, Viewer
from ..folder import ServerFolder

SESSION, VISIT = "davylamp_session", "davylamp_visit"


@dataclass
class RequestContext:
    """A request, and who makes it.

    Args:
        request: as it came.
        folder: of the server.
        viewer: who asks.
        session: what the cookie of the session holds, "" without one.
        visit: what the other cookie holds, by which forms of visitors are known.
    """

    request: Request
    folder: ServerFolder
    viewer: Viewer
    session: str = ""
    visit: str = ""

    @property
    def origin(self) -> Origin:
        """For the log."""
        return Origin(self.viewer.name, self.address)

    @property
    def address(self) -> str:
        """Of the machine that asks, as the server or the proxy before it knows it."""
        return self.request.client.host if self.request.client else ""

    @property
    def csrf_token(self) -> str:
        """What forms of this visit send back."""
        return csrf_token(self.folder.secret, self.session or self.visit)


def page_context(request: Request) -> RequestContext:
    """Who asks for a page: by the session's cookie."""
    folder: ServerFolder = request.app.state.folder
    session, visit = request.cookies.get(SESSION, "")[:100], request.cookies.get(VISIT, "")[:100]
    viewer = None
    if session:
        with folder.database.reading() as reading:
            viewer = viewer_of_session(reading, session)
    session = session if viewer is not None else ""
    return RequestContext(request, folder, viewer or VISITOR, session, visit or secrets.token_urlsafe(24))


Page = Annotated[RequestContext, Depends(page_context)]


def check_form(visit: Page, mark: Annotated[str, Form()] = "") -> RequestContext:
    """A visit that sends a form of ours.

    Raises:
        ForbiddenError: if the form is from elsewhere, or its page too old.
    """
    cookie = visit.session or visit.request.cookies.get(VISIT, "")[:100]
    site = visit.request.headers.get("sec-fetch-site", "same-origin")
    if site not in ("same-origin", "none") or not is_form_mark(visit.folder.secret, cookie, mark):
        raise ForbiddenError(
            "expected a form of this server's own page; go back, load the page again and send it again"
        )
    return visit


Sent = Annotated[RequestContext, Depends(check_form)]


def api_context(request: Request) -> RequestContext:
    """Who asks by a program: by a token, or for reading by the session of a browser.

    Raises:
        ForbiddenError: if a token is shown that is none.
    """
    folder: ServerFolder = request.app.state.folder
    kind, _, secret = request.headers.get("authorization", "").partition(" ")
    if kind:
        with folder.database.reading() as reading:
            viewer = viewer_of_token(reading, secret.strip()) if kind.lower() == "bearer" else None
        if viewer is None:
            raise NoToken("expected a token that is valid as Authorization: Bearer TOKEN")
        return RequestContext(request, folder, viewer)
    visit = page_context(request)
    # A page elsewhere can make a browser send its cookie along: such a request only reads.
    scopes: frozenset[Scope] = frozenset(("read",))
    return RequestContext(request, folder, Viewer(visit.viewer.id, visit.viewer.name, visit.viewer.is_admin, scopes))


class NoToken(ForbiddenError):
    """A token that is none, or no longer."""


Program = Annotated[RequestContext, Depends(api_context)]


def read_with(visit: Program) -> RequestContext:
    """A program that may read; a token without that scope sees what visitors do."""
    return visit if "read" in visit.viewer.scopes else RequestContext(visit.request, visit.folder, VISITOR)


def submit_with(visit: Program) -> RequestContext:
    """A program that may submit."""
    if not visit.viewer.may_submit:
        raise ForbiddenError("expected a token with the scope submit")
    return visit


def administer_with(visit: Program) -> RequestContext:
    """A program of an admin."""
    if not visit.viewer.is_admin or "admin" not in visit.viewer.scopes:
        raise ForbiddenError("expected a token of an admin with the scope admin")
    return visit


def check_signed_in(visit: RequestContext) -> RequestContext:
    """Raise ForbiddenError of a visitor."""
    if visit.viewer.id is None:
        raise ForbiddenError("expected to be signed in")
    return visit


def check_admin(visit: RequestContext) -> RequestContext:
    """Raise ForbiddenError unless an admin asks."""
    if not visit.viewer.is_admin:
        raise ForbiddenError("expected an admin")
    return visit


Reading = Annotated[RequestContext, Depends(read_with)]
Submitting = Annotated[RequestContext, Depends(submit_with)]
Administering = Annotated[RequestContext, Depends(administer_with)]


def set_cookie(visit: RequestContext, response: Any, name: str, value: str, seconds: int | None = None) -> None:
    """A cookie that scripts do not see, that no other site's form sends, and over HTTPS alone where there is it."""
    is_secure = visit.request.url.scheme == "https"
    response.set_cookie(name, value, max_age=seconds, httponly=True, samesite="lax", secure=is_secure, path="/")
