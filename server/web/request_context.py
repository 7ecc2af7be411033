"""Identifies the user of a request by session cookie or token, and checks CSRF tokens."""

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
    """Request with its user.

    Args:
        request: HTTP request.
        folder: server folder.
        viewer: user of the request.
        session: value of the session cookie, "" without one.
        visit: value of a second cookie, which identifies the forms of visitors without a session.
    """

    request: Request
    folder: ServerFolder
    viewer: Viewer
    session: str = ""
    visit: str = ""

    @property
    def origin(self) -> Origin:
        """Origin of the request, for the audit log."""
        return Origin(self.viewer.name, self.address)

    @property
    def address(self) -> str:
        """Client address, as known to the server or reported by its proxy."""
        return self.request.client.host if self.request.client else ""

    @property
    def csrf_token(self) -> str:
        """CSRF token of this request's forms."""
        return csrf_token(self.folder.secret, self.session or self.visit)


def page_context(request: Request) -> RequestContext:
    """Identify the user of a page by the session cookie."""
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
    """Raise an error unless a form was sent from one of this server's pages.

    Raises:
        ForbiddenError: If the form comes from a different site, or its page is too old.
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
    """Identify the user of an API request by its token. For reading, a session cookie is also accepted.

    Raises:
        ForbiddenError: If the token is invalid.
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
    # A different site can make a browser send its cookie, so such requests may only read.
    scopes: frozenset[Scope] = frozenset(("read",))
    return RequestContext(request, folder, Viewer(visit.viewer.id, visit.viewer.name, visit.viewer.is_admin, scopes))


class NoToken(ForbiddenError):
    """The token is invalid or expired."""


Program = Annotated[RequestContext, Depends(api_context)]


def read_with(visit: Program) -> RequestContext:
    """Return the context for reading. A token without the scope "read" sees only public objects."""
    return visit if "read" in visit.viewer.scopes else RequestContext(visit.request, visit.folder, VISITOR)


def submit_with(visit: Program) -> RequestContext:
    """Return the context if the user may submit."""
    if not visit.viewer.may_submit:
        raise ForbiddenError("expected a token with the scope submit")
    return visit


def administer_with(visit: Program) -> RequestContext:
    """Return the context if the user may administer."""
    if not visit.viewer.is_admin or "admin" not in visit.viewer.scopes:
        raise ForbiddenError("expected a token of an admin with the scope admin")
    return visit


def check_signed_in(visit: RequestContext) -> RequestContext:
    """Raise ForbiddenError if the user has not signed in."""
    if visit.viewer.id is None:
        raise ForbiddenError("sign in first")
    return visit


def check_admin(visit: RequestContext) -> RequestContext:
    """Raise ForbiddenError unless the user is an admin."""
    if not visit.viewer.is_admin:
        raise ForbiddenError("expected an admin")
    return visit


Reading = Annotated[RequestContext, Depends(read_with)]
Submitting = Annotated[RequestContext, Depends(submit_with)]
Administering = Annotated[RequestContext, Depends(administer_with)]


def set_cookie(visit: RequestContext, response: Any, name: str, value: str, seconds: int | None = None) -> None:
    """Set a cookie that is HttpOnly and SameSite, and also Secure if HTTPS is used."""
    is_secure = visit.request.url.scheme == "https"
    response.set_cookie(name, value, max_age=seconds, httponly=True, samesite="lax", secure=is_secure, path="/")
