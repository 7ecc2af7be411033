"""User accounts and their passwords, which are stored as Argon2 hashes."""

import math
import re
import secrets
import threading
import time
from functools import cache
from typing import TYPE_CHECKING

from sqlalchemy import select
from sqlalchemy.orm import Session

from ...errors import InvalidInput, UnknownName
from ..database.connecting import Database
from ..database.records import FactRow, Role, SignInRow, TokenRow, UserRow
from .audit import FAILED, REGISTERED, Origin, check_rate, check_registrations, note

if TYPE_CHECKING:
    from argon2 import PasswordHasher

NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,39}")
SYSTEM = "davylamp"  # owner of the embedded components; cannot sign in
_REGISTRATION, _REGISTRATION_HOURS = "registration", "registration hours"
_MOST_HOURS = 10**6
_SHORTEST, _LONGEST = 10, 200
_HASHING = threading.BoundedSemaphore(4)  # most passwords hashed simultaneously: each takes 64 MiB


class InvalidCredentials(InvalidInput):
    """Wrong name or password. The message is the same for both."""


def generate_password() -> str:
    """Return a password with 96 random bits, as groups of four letters and digits."""
    letters = "abcdefghjkmnpqrstuvwxyz23456789"
    return "-".join("".join(secrets.choice(letters) for _ in range(4)) for _ in range(5))


def add_user(session: Session, hasher: "PasswordHasher", name: str, password: str, role: Role = "user") -> UserRow:
    """Create a user.

    Raises:
        InvalidInput: If the name is taken or invalid, or the password is too short.
    """
    check_password(password)
    return _insert_user(session, name, hasher.hash(password), role)


def _check_name(session: Session, name: str) -> None:
    """Raise InvalidInput if a name is invalid or taken."""
    if not NAME.fullmatch(name):
        raise InvalidInput(
            f"expected a name of at most 40 lowercase letters, digits, '.', '_' and '-', got {name[:60]!r}"
        )
    if session.scalar(select(UserRow.id).where(UserRow.name == name)) is not None or name == SYSTEM:
        raise InvalidInput(f"the name {name} is already taken")


def _insert_user(session: Session, name: str, hashed: str, role: Role) -> UserRow:
    _check_name(session, name)
    user = UserRow(name=name, password=hashed, role=role, active=True, created=time.time())
    session.add(user)
    session.flush()
    return user


def registration_open(session: Session) -> bool:
    """Return whether visitors may register themselves. Initially they may not, and an admin can change this."""
    return _fact(session, _REGISTRATION) == 1


def registration_hours(session: Session) -> int | None:
    """Return the hours of computing within seven days that a self-registered user gets. None for no limit."""
    return _fact(session, _REGISTRATION_HOURS)


def open_registration(session: Session, *, is_open: bool, hours: int | None = None) -> None:
    """Open or close registration by visitors.

    Args:
        session: database session for writing.
        is_open: whether visitors may register themselves.
        hours: hours of computing within seven days that each of them gets. None for no limit.

    Raises:
        InvalidInput: If the number of hours is negative or too large.
    """
    if hours is not None and not 0 <= hours <= _MOST_HOURS:
        raise InvalidInput(f"expected hours as a whole number from 0 to {_MOST_HOURS}, got {hours}")
    for name, value in ((_REGISTRATION, int(is_open)), (_REGISTRATION_HOURS, hours)):
        fact = session.get(FactRow, name)
        if fact is not None and value is None:
            session.delete(fact)
        elif fact is not None and value is not None:
            fact.value = value
        elif value is not None:
            session.add(FactRow(name=name, value=value))


def register_user(database: Database, hasher: "PasswordHasher", origin: Origin, password: str) -> UserRow:
    """Create a user at the request of a visitor, and log it. The database is not locked while the password is hashed.

    Args:
        database: database of the server.
        hasher: hasher of passwords.
        origin: chosen name, and address of the visitor.
        password: chosen password.

    Raises:
        InvalidInput: If registration is not open, or `add_user` refuses the name or password.
        TooManyAttempts: After too many registrations from this address within a day.
    """
    with database.reading() as session:
        _check_registration(session, origin)
        _check_name(session, origin.who)  # before the hash, which is work that a visitor must not be able to ask for
    check_password(password)
    with _HASHING:
        hashed = hasher.hash(password)
    with database.writing() as session:
        _check_registration(session, origin)  # there may have been other registrations in the meantime
        user = _insert_user(session, origin.who, hashed, "user")
        user.hours = registration_hours(session)
        note(session, origin, REGISTERED)
    return user


def _check_registration(session: Session, origin: Origin) -> None:
    if not registration_open(session):
        raise InvalidInput("registration is not open; an admin can add you")
    check_registrations(session, origin)


def _fact(session: Session, name: str) -> int | None:
    fact = session.get(FactRow, name)
    return None if fact is None else fact.value


def check_password(password: str) -> None:
    """Raise InvalidInput unless a password has an allowed length."""
    if not _SHORTEST <= len(password) <= _LONGEST:
        raise InvalidInput(f"expected a password of {_SHORTEST} to {_LONGEST} characters, got {len(password)}")


def change_password(session: Session, hasher: "PasswordHasher", user: UserRow, password: str) -> None:
    """Change a password, and end all sessions and tokens of the user."""
    check_password(password)
    user.password = hasher.hash(password)
    revoke_all_sessions(session, user.id)


def set_active(session: Session, user: UserRow, *, active: bool) -> None:
    """Block a user and end their sessions and tokens, or unblock the user."""
    user.active = active
    if not active:
        revoke_all_sessions(session, user.id)


def set_hours(user: UserRow, hours: float | None) -> None:
    """Limit the hours of computing within seven days for a user's tasks. None for no limit.

    Raises:
        InvalidInput: If the number is negative or not finite.
    """
    if hours is not None and not 0 <= hours < math.inf:
        raise InvalidInput(f"expected hours as a number from 0, got {hours}")
    user.hours = hours


def revoke_all_sessions(session: Session, user_id: int) -> None:
    """End every session and token of a user."""
    for table in (SignInRow, TokenRow):
        for row in session.scalars(select(table).where(table.user_id == user_id)):
            session.delete(row)


def find_user(session: Session, name: str) -> UserRow:
    """Return a user by name.

    Raises:
        UnknownName: If there is no such user.
    """
    user = session.scalar(select(UserRow).where(UserRow.name == name))
    if user is None:
        raise UnknownName("user", name, session.scalars(select(UserRow.name)).all())
    return user


def has_admin(session: Session) -> bool:
    """Return whether there is an active admin."""
    admins = select(UserRow.id).where(UserRow.role == "admin", UserRow.active)
    return session.scalar(admins.limit(1)) is not None


def sign_in(database: Database, hasher: "PasswordHasher", origin: Origin, password: str) -> UserRow | None:
    """Return the user with this name and password, or None if the name or the password is wrong. Failures are logged.

    A wrong name takes as long as a wrong password. The database is not locked while a password is hashed.

    Raises:
        TooManyAttempts: After too many failed attempts.
    """
    with database.reading() as session:
        check_rate(session, origin)
        user = session.scalar(select(UserRow).where(UserRow.name == origin.who))
    usable = user is not None and user.active and bool(user.password)
    with _HASHING:
        stated = user.password if user is not None and usable else _nobody(hasher)
        is_right = _is_password(hasher, stated, password[: _LONGEST + 1])
    with database.writing() as session:
        check_rate(session, origin)  # there may have been other attempts in the meantime
        note(session, origin, "signed in" if is_right and usable else FAILED)
    return user if is_right and usable else None


def _is_password(hasher: "PasswordHasher", stated: str, password: str) -> bool:
    from argon2.exceptions import InvalidHashError, VerificationError

    try:
        return hasher.verify(stated, password)
    except (VerificationError, InvalidHashError):
        return False


@cache
def _nobody(hasher: "PasswordHasher") -> str:
    """Return a hash to compare with if no user has the given name."""
    return hasher.hash(secrets.token_hex())
