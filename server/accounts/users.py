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
    """Raised if the user name or the password is wrong. The message does not say which of them is wrong."""


def generate_password() -> str:
    """Return a random password of five groups of four letters and digits."""
    letters = "abcdefghjkmnpqrstuvwxyz23456789"
    return "-".join("".join(secrets.choice(letters) for _ in range(4)) for _ in range(5))


def add_user(session: Session, hasher: "PasswordHasher", name: str, password: str, role: Role = "user") -> UserRow:
    """Create a user account.

    Raises:
        InvalidInput: If the name is taken or invalid, or if the password is too short or too long.
    """
    check_password(password)
    return _insert_user(session, name, hasher.hash(password), role)


def _check_name(session: Session, name: str) -> None:
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
    """Return whether visitors may create a user account for themselves. On a new server, they may not."""
    return _fact(session, _REGISTRATION) == 1


def registration_hours(session: Session) -> int | None:
    """Return the limit on computing time of users who registered themselves, in hours per seven days.

    None if there is no limit.
    """
    return _fact(session, _REGISTRATION_HOURS)


def open_registration(session: Session, *, is_open: bool, hours: int | None = None) -> None:
    """Allow or forbid that visitors create a user account for themselves.

    Args:
        session: database session for writing.
        is_open: whether visitors may register themselves.
        hours: limit on the computing time of users who register themselves, in hours per seven days. None for no limit.

    Raises:
        InvalidInput: If `hours` is negative or too large.
    """
    if hours is not None and not 0 <= hours <= _MOST_HOURS:
        raise InvalidInput(f"expected the limit of hours as a whole number from 0 to {_MOST_HOURS}, got {hours}")
    for name, value in ((_REGISTRATION, int(is_open)), (_REGISTRATION_HOURS, hours)):
        fact = session.get(FactRow, name)
        if fact is not None and value is None:
            session.delete(fact)
        elif fact is not None and value is not None:
            fact.value = value
        elif value is not None:
            session.add(FactRow(name=name, value=value))


def register_user(database: Database, hasher: "PasswordHasher", origin: Origin, password: str) -> UserRow:
    """Create a user account for a visitor, and add an entry to the audit log.

    The database is not locked while the password is hashed, which is slow.

    Args:
        database: database of the server.
        hasher: hasher of passwords.
        origin: user name that the visitor chose, and the visitor's address.
        password: password that the visitor chose.

    Raises:
        InvalidInput: If visitors may not register, if the name is taken or invalid, or if the password is too short or
            too long.
        TooManyAttempts: If five users were registered from this address within a day.
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
    """Raise InvalidInput if a password is too short or too long."""
    if not _SHORTEST <= len(password) <= _LONGEST:
        raise InvalidInput(f"expected a password of {_SHORTEST} to {_LONGEST} characters, got {len(password)}")


def change_password(session: Session, hasher: "PasswordHasher", user: UserRow, password: str) -> None:
    """Change the password of a user, and end all browser sessions and tokens of this user."""
    check_password(password)
    user.password = hasher.hash(password)
    revoke_all_sessions(session, user.id)


def set_active(session: Session, user: UserRow, *, active: bool) -> None:
    """Block or unblock a user. If the user is blocked, all browser sessions and tokens of this user end."""
    user.active = active
    if not active:
        revoke_all_sessions(session, user.id)


def set_hours(user: UserRow, hours: float | None) -> None:
    """Limit the computing time for the tasks of a user.

    Raises:
        InvalidInput: If `hours` is negative or not finite.
    """
    if hours is not None and not 0 <= hours < math.inf:
        raise InvalidInput(f"expected the limit of hours as a number of at least 0, got {hours}")
    user.hours = hours


def revoke_all_sessions(session: Session, user_id: int) -> None:
    """Delete all browser sessions and API tokens of a user."""
    for table in (SignInRow, TokenRow):
        for row in session.scalars(select(table).where(table.user_id == user_id)):
            session.delete(row)


def find_user(session: Session, name: str) -> UserRow:
    """Return the user account with a given name.

    Raises:
        UnknownName: If there is no user of this name.
    """
    user = session.scalar(select(UserRow).where(UserRow.name == name))
    if user is None:
        raise UnknownName("user", name, session.scalars(select(UserRow.name)).all())
    return user


def has_admin(session: Session) -> bool:
    """Return whether the server has an admin who is not blocked."""
    admins = select(UserRow.id).where(UserRow.role == "admin", UserRow.active)
    return session.scalar(admins.limit(1)) is not None


def sign_in(database: Database, hasher: "PasswordHasher", origin: Origin, password: str) -> UserRow | None:
    """Check the name and password of a user who wants to sign in, and add an entry to the audit log.

    A wrong name takes as long as a wrong password, so that nobody can find out which names exist. The database is not
    locked while the password is hashed, which is slow.

    Returns:
        The user. None if the name or password is wrong, or if the user is blocked.

    Raises:
        TooManyAttempts: If there were too many failed sign-ins for this name or from this address.
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
    """Return the hash of a random password, which is compared with the given password if the user name is wrong."""
    return hasher.hash(secrets.token_hex())
