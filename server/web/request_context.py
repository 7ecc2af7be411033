"""Identifies the user who sent a request, by session cookie or API token, and checks CSRF tokens of forms."""

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
    """An HTTP request with the user who sent it.

    Args:
        request: the HTTP request.
        folder: folder of the server.
        viewer: user of the request, or `VISITOR`.
        session: value of the session cookie; "" if the user has not signed in.
        visit: value of a second cookie, from which the CSRF token is computed for users who have not signed in.
    """

    request: Request
    folder: ServerFolder
    viewer: Viewer
    session: str = ""
    visit: str = ""

    @property
    def origin(self) -> Origin:
        """User name and network address of the request, for the audit log."""
        return Origin(self.viewer.name, self.address)

    @property
    def address(self) -> str:
        """Network address of the client; "" if unknown. Behind a proxy, the address that the proxy reports."""
        return self.request.client.host if self.request.client else ""

    @property
    def csrf_token(self) -> str:
        """CSRF token for the forms on the page that answers this request."""
        return csrf_token(self.folder.secret, self.session or self.visit)


def page_context(request: Request) -> RequestContext:
    """Identify the user who requests a web page, by the session cookie."""
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
    """Check that a form was sent from a page of this server, by its CSRF token.

    Raises:
        ForbiddenError: If the form comes from a different site, or from a page of an earlier session.
    """
    cookie = visit.session or visit.request.cookies.get(VISIT, "")[:100]
    site = visit.request.headers.get("sec-fetch-site", "same-origin")
    if site not in ("same-origin", "none") or not is_form_mark(visit.folder.secret, cookie, mark):
        raise ForbiddenError(
            "the form does not come from a current page of this server; go back, load the page again, and send the "
            "form again"
        )
    return visit


Sent = Annotated[RequestContext, Depends(check_form)]


def api_context(request: Request) -> RequestContext:
    """Identify the user of a request to the JSON interface, by the API token in its header.

    Without a token, the session cookie is used, but the request may then only read.

    Raises:
        NoToken: If the token is invalid or expired.
    """
    folder: ServerFolder = request.app.state.folder
    kind, _, secret = request.headers.get("authorization", "").partition(" ")
    if kind:
        with folder.database.reading() as reading:
            viewer = viewer_of_token(reading, secret.strip()) if kind.lower() == "bearer" else None
        if viewer is None:
            raise NoToken("expected a header Authorization: Bearer TOKEN with a valid token, got an invalid token")
        return RequestContext(request, folder, viewer)
    visit = page_context(request)
    # A different site can make a browser send its cookie, so such requests may only read.
    scopes: frozenset[Scope] = frozenset(("read",))
    return RequestContext(request, folder, Viewer(visit.viewer.id, visit.viewer.name, visit.viewer.is_admin, scopes))


class NoToken(ForbiddenError):
    """Raised if the API token of a request is invalid or expired."""


Program = Annotated[RequestContext, Depends(api_context)]


def read_with(visit: Program) -> RequestContext:
    """Return the context of a request that reads. With a token without the scope "read", the user is a visitor."""
    return visit if "read" in visit.viewer.scopes else RequestContext(visit.request, visit.folder, VISITOR)


def submit_with(visit: Program) -> RequestContext:
    """Return the context of a request that changes something. Raises ForbiddenError without the scope "submit"."""
    if not visit.viewer.may_submit:
        raise ForbiddenError("this request needs a token with the scope submit")
    return visit


def administer_with(visit: Program) -> RequestContext:
    """Return the context of a request that only an admin may make, or raise ForbiddenError for any other token."""
    if not visit.viewer.is_admin or "admin" not in visit.viewer.scopes:
        raise ForbiddenError("this request needs a token of an admin with the scope admin")
    return visit


def check_signed_in(visit: RequestContext) -> RequestContext:
    """Return the context unchanged. Raises ForbiddenError if the user has not signed in."""
    if visit.viewer.id is None:
        raise ForbiddenError("sign in first")
    return visit


def check_admin(visit: RequestContext) -> RequestContext:
    """Return the context unchanged. Raises ForbiddenError if the user is not an admin."""
    if not visit.viewer.is_admin:
        raise ForbiddenError("only admins may use this page")
    return visit


Reading = Annotated[RequestContext, Depends(read_with)]
Submitting = Annotated[RequestContext, Depends(submit_with)]
Administering = Annotated[RequestContext, Depends(administer_with)]


def set_cookie(visit: RequestContext, response: Any, name: str, value: str, seconds: int | None = None) -> None:
    """Set a cookie that scripts cannot read and other sites cannot send."""
    is_secure = visit.request.url.scheme == "https"
    response.set_cookie(name, value, max_age=seconds, httponly=True, samesite="lax", secure=is_secure, path="/")
