"""Web pages for accounts: sign-in, registration, password and tokens, and for admins also users and the audit log."""

import re
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Form
from fastapi.responses import HTMLResponse, Response
from sqlalchemy import select
from sqlalchemy.orm import Session

from ...adapters.parameters import parse_number
from ...errors import InvalidInput
from ..accounts.audit import Origin, TooManyAttempts, note
from ..accounts.sessions import SCOPES, SESSION_SECONDS, TOKEN_DAYS, end_session, make_token, start_session
from ..accounts.users import (
    SYSTEM,
    add_user,
    change_password,
    find_user,
    generate_password,
    open_registration,
    register_user,
    registration_hours,
    registration_open,
    set_active,
    set_hours,
    sign_in,
)
from ..components.registration import NotFoundError
from ..database.records import AuditRow, Role, TokenRow, UserRow
from ..tasks.leases import list_spent
from .rendering import redirect, render
from .request_context import SESSION, Page, RequestContext, Sent, check_admin, check_signed_in, set_cookie

router = APIRouter(include_in_schema=False)
_LINES = 500


@router.get("/sign-in")
def sign_in_page(visit: Page) -> HTMLResponse:
    """Show the sign-in form."""
    return _show_sign_in(visit)


@router.post("/sign-in")
def signed_in(visit: Sent, name: Annotated[str, Form()] = "", password: Annotated[str, Form()] = "") -> Response:
    """Sign a user in, and start a browser session. A wrong name gives the same response as a wrong password."""
    folder, origin = visit.folder, Origin(name.strip()[:64], visit.address)
    try:
        user = sign_in(folder.database, folder.hasher, origin, password)
    except TooManyAttempts as error:
        return _show_sign_in(visit, str(error), 429)
    if user is None:
        return _show_sign_in(visit, "The name or the password is wrong.", 401)
    with folder.database.writing() as session:
        if visit.session:
            end_session(session, visit.session)
        secret = start_session(session, user)
    response = redirect("/tasks")
    set_cookie(visit, response, SESSION, secret, int(SESSION_SECONDS))
    return response


@router.get("/register")
def registration_page(visit: Page) -> HTMLResponse:
    """Show the form with which a visitor creates a user account, if this is allowed."""
    return _show_registration(visit)


@router.post("/register")
def registered(
    visit: Sent,
    name: Annotated[str, Form()] = "",
    password: Annotated[str, Form()] = "",
    again: Annotated[str, Form()] = "",
) -> Response:
    """Create the user account of a visitor who sent the registration form, if this is allowed."""
    folder = visit.folder
    if password != again:
        return _show_registration(visit, "The two passwords differ.", 400)
    register_user(folder.database, folder.hasher, Origin(name.strip()[:64], visit.address), password)
    return redirect("/sign-in")


@router.post("/sign-out")
def signed_out(visit: Sent) -> Response:
    """Sign the user out: end the browser session."""
    with visit.folder.database.writing() as session:
        end_session(session, visit.session)
        note(session, visit.origin, "signed out")
    response = redirect("/")
    response.delete_cookie(SESSION, path="/")
    return response


@router.get("/account")
def account(visit: Page) -> HTMLResponse:
    """Show the account page, with a form for a new password and the user's API tokens."""
    return show_account(visit)


@router.post("/account/password")
def password(visit: Sent, old: Annotated[str, Form()] = "", new: Annotated[str, Form()] = "") -> Response:
    """Change the password of the user, which also ends all browser sessions and tokens of the user."""
    check_signed_in(visit)
    folder = visit.folder
    user = sign_in(folder.database, folder.hasher, visit.origin, old)
    if user is None:
        return show_account(visit, problem="The current password is wrong.", status=401)
    with folder.database.writing() as session:
        change_password(session, folder.hasher, session.get_one(UserRow, user.id), new)
        note(session, visit.origin, "changed the password")
    return redirect("/sign-in")


@router.post("/account/tokens")
def add_token(
    visit: Sent,
    name: Annotated[str, Form()] = "",
    scopes: Annotated[list[str], Form()] = [],  # noqa: B006 - FastAPI copies it
    days: Annotated[int, Form()] = TOKEN_DAYS,
) -> Response:
    """Create an API token of the user, and show the token. It cannot be shown again later."""
    check_signed_in(visit)
    with visit.folder.database.writing() as session:
        secret = make_token(session, visit.viewer, name or "token", frozenset(scopes), days)
        note(session, visit.origin, "made a token", f"{name[:60]}: {' '.join(sorted(scopes))}")
    return show_account(visit, secret=secret)


@router.post("/account/tokens/{number}/delete")
def delete_token(visit: Sent, number: int) -> Response:
    """Delete an API token of the user."""
    check_signed_in(visit)
    with visit.folder.database.writing() as session:
        mine = select(TokenRow).where(TokenRow.id == number, TokenRow.user_id == visit.viewer.id)
        row = session.scalar(mine)
        if row is None:
            raise NotFoundError(f"you have no token with the number {number}")
        session.delete(row)
        note(session, visit.origin, "deleted a token", row.name)
    return redirect("/account")


@router.get("/admin/users")
def users(visit: Page) -> HTMLResponse:
    """Show all users to an admin."""
    return show_users(visit)


@router.post("/admin/users")
def new_user(visit: Sent, name: Annotated[str, Form()] = "", role: Annotated[Role, Form()] = "user") -> Response:
    """Create a user account with a random password, and show the password. It cannot be shown again later."""
    check_admin(visit)
    generated = generate_password()
    with visit.folder.database.writing() as session:
        add_user(session, visit.folder.hasher, name.strip(), generated, role)
        note(session, visit.origin, "added a user", f"{name[:60]}: {role}")
    return show_users(visit, name=name.strip(), password=generated)


@router.post("/admin/registration")
def change_registration(
    visit: Sent, action: Annotated[Literal["open", "close"], Form()], hours: Annotated[str, Form()] = ""
) -> Response:
    """Allow or forbid that visitors create user accounts, and set the limit on computing time of these users."""
    check_admin(visit)
    if hours.strip() and not re.fullmatch("[0-9]{1,9}", hours.strip()):
        raise InvalidInput(f"expected the limit of hours as a whole number, got {hours[:40]!r}")
    with visit.folder.database.writing() as session:
        open_registration(session, is_open=action == "open", hours=int(hours) if hours.strip() else None)
        note(session, visit.origin, "changed the registration", f"{action} {hours[:40]}".rstrip())
    return redirect("/admin/users")


@router.post("/admin/users/{name}")
def change_user(visit: Sent, name: str, action: Annotated[str, Form()], hours: Annotated[str, Form()] = "") -> Response:
    """Change a user account.

    The form field `action` is one of:

    - "in" or "out": unblock or block the user;
    - "hours": set the limit on the user's computing time to `hours` per seven days. "" removes the limit;
    - "password": set a random password, and show the password. It cannot be shown again later.
    """
    check_admin(visit)
    shown: dict[str, Any] = {}
    with visit.folder.database.writing() as session:
        user = find_other(session, visit, name)
        if action == "password":
            shown = {"name": name, "password": generate_password()}
            change_password(session, visit.folder.hasher, user, shown["password"])
        elif action in ("in", "out"):
            set_active(session, user, active=action == "in")
        elif action == "hours":
            set_hours(user, parse_number(hours[:40], "hours") if hours.strip() else None)
        else:
            raise InvalidInput(f"expected the action password, in, out or hours, got {action[:40]!r}")
        note(session, visit.origin, "changed a user", f"{name}: {action} {hours[:40]}".rstrip())
    return show_users(visit, **shown)


def find_other(session: Session, visit: RequestContext, name: str) -> UserRow:
    """Return the user account that an admin wants to change.

    Admins cannot change their own account, so that at least one admin remains. The account to which the initial
    components belong cannot be changed either.
    """
    if name in (SYSTEM, visit.viewer.name):
        raise InvalidInput(f"the user {name[:60]} cannot be changed: it is your own account, or the server's")
    return find_user(session, name)


@router.get("/admin/audit")
def audit(visit: Page) -> HTMLResponse:
    """Show the newest entries of the audit log to an admin."""
    check_admin(visit)
    with visit.folder.database.reading() as session:
        rows = session.scalars(select(AuditRow).order_by(AuditRow.id.desc()).limit(_LINES)).all()
    return render(visit, "audit.html", rows=rows)


def _show_sign_in(visit: RequestContext, problem: str = "", status: int = 200) -> HTMLResponse:
    with visit.folder.database.reading() as session:
        is_open = registration_open(session)
    return render(visit, "sign_in.html", status=status, problem=problem, is_open=is_open)


def _show_registration(visit: RequestContext, problem: str = "", status: int = 200) -> HTMLResponse:
    with visit.folder.database.reading() as session:
        if not registration_open(session):
            raise NotFoundError("registration is not open; an admin can add you")
    return render(visit, "register.html", status=status, problem=problem)


def show_account(visit: RequestContext, *, secret: str = "", problem: str = "", status: int = 200) -> HTMLResponse:
    """Render the account page."""
    check_signed_in(visit)
    with visit.folder.database.reading() as session:
        mine = select(TokenRow).where(TokenRow.user_id == visit.viewer.id).order_by(TokenRow.id)
        rows = session.scalars(mine).all()
    scopes = [scope for scope in SCOPES if scope != "admin" or visit.viewer.is_admin]
    shown = {"tokens": rows, "scopes": scopes, "secret": secret, "problem": problem, "days": TOKEN_DAYS}
    return render(visit, "account.html", status=status, **shown)


def show_users(visit: RequestContext, *, name: str = "", password: str = "") -> HTMLResponse:
    """Render the page with all users.

    Args:
        visit: the request of an admin.
        name: name of a user who was just created or got a new password.
        password: the new password of this user, to show on the page.
    """
    check_admin(visit)
    with visit.folder.database.reading() as session:
        rows = session.scalars(select(UserRow).where(UserRow.name != SYSTEM).order_by(UserRow.name)).all()
        shown = {"spent": list_spent(session), "is_open": registration_open(session)}
        shown["registration_hours"] = registration_hours(session)
    return render(visit, "users.html", rows=rows, name=name, password=password, **shown)
