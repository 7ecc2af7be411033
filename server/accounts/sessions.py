"""Browser sessions and API tokens. Both are random secrets that expire, and the database contains only their hashes."""

import hashlib
import hmac
import secrets
import time
from typing import get_args

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from ...errors import InvalidInput
from ..database.permissions import Scope, Viewer
from ..database.records import SignInRow, TokenRow, UserRow

SESSION_SECONDS = 12 * 3600.0
TOKEN_DAYS = 90
_MOST_TOKENS = 50
_PREFIX = "davylamp_"
SCOPES: tuple[Scope, ...] = get_args(Scope)


def digest_of_secret(secret: str) -> str:
    """Return the SHA-256 hash of a secret, as stored in the database.

    Unlike passwords, secrets need no slow hash, because they have 256 random bits and cannot be guessed.
    """
    return hashlib.sha256(secret.encode()).hexdigest()


def start_session(session: Session, user: UserRow) -> str:
    """Start a browser session for a user, and return the value of the session cookie. Delete expired sessions."""
    session.execute(delete(SignInRow).where(SignInRow.expires < time.time()))
    secret = secrets.token_urlsafe(32)
    session.add(SignInRow(digest=digest_of_secret(secret), user_id=user.id, expires=time.time() + SESSION_SECONDS))
    return secret


def end_session(session: Session, secret: str) -> None:
    """End a browser session. `secret` is the value of the session cookie."""
    session.execute(delete(SignInRow).where(SignInRow.digest == digest_of_secret(secret)))


def viewer_of_session(session: Session, secret: str) -> Viewer | None:
    """Return the user to whom a session cookie belongs; None if the cookie is invalid or expired."""
    row = session.get(SignInRow, digest_of_secret(secret)) if secret else None
    if row is None or row.expires < time.time():
        return None
    return _viewer(session.get(UserRow, row.user_id), frozenset(SCOPES))


def make_token(session: Session, viewer: Viewer, name: str, scopes: frozenset[str], days: int = TOKEN_DAYS) -> str:
    """Create an API token, and return the token. It cannot be read again later, because only its hash is stored.

    Args:
        session: database session for writing.
        viewer: owner of the token.
        name: name by which the user recognises the token.
        scopes: permissions of the token: "read", "submit" and "admin". Only admins may use "admin".
        days: number of days after which the token expires, at most 366.

    Raises:
        InvalidInput: If the scopes are not allowed, if the number of days is out of range, or if the user has too many
            tokens.
    """
    if viewer.id is None or not scopes or not scopes <= set(SCOPES):
        raise InvalidInput(
            f"expected at least one of the scopes {', '.join(SCOPES)}, got {', '.join(sorted(scopes))[:100] or 'none'}"
        )
    if "admin" in scopes and not viewer.is_admin:
        raise InvalidInput("only admins can create a token with the scope admin; leave out admin")
    if not 1 <= days <= 366:
        raise InvalidInput(f"expected a token that is valid for 1 to 366 days, got {days} days")
    if len(session.scalars(select(TokenRow.id).where(TokenRow.user_id == viewer.id)).all()) >= _MOST_TOKENS:
        raise InvalidInput(f"you already have {_MOST_TOKENS} tokens, the maximum; delete a token that you do not use")
    secret, now = _PREFIX + secrets.token_urlsafe(32), time.time()
    words = " ".join(scope for scope in SCOPES if scope in scopes)
    kept = {"digest": digest_of_secret(secret), "scopes": words, "created": now, "expires": now + days * 86400}
    session.add(TokenRow(user_id=viewer.id, name=name[:100], used=0.0, **kept))
    return secret


def viewer_of_token(session: Session, secret: str) -> Viewer | None:
    """Return the user of an API token, with the scopes of the token; None if the token is invalid or expired."""
    row = session.scalar(select(TokenRow).where(TokenRow.digest == digest_of_secret(secret)))
    if row is None or row.expires < time.time():
        return None
    scopes: frozenset[Scope] = frozenset(scope for scope in SCOPES if scope in row.scopes.split())
    return _viewer(session.get(UserRow, row.user_id), scopes)


def csrf_token(key: bytes, cookie: str) -> str:
    """Return the CSRF token that forms must send together with a session cookie."""
    return hmac.new(key, b"form " + cookie.encode(), hashlib.sha256).hexdigest()


def is_form_mark(key: bytes, cookie: str, mark: str) -> bool:
    """Return whether `mark` is the CSRF token that belongs to a session cookie. False without a cookie."""
    return bool(cookie) and hmac.compare_digest(csrf_token(key, cookie), mark)


def _viewer(user: UserRow | None, scopes: frozenset[Scope]) -> Viewer | None:
    if user is None or not user.active:
        return None
    return Viewer(user.id, user.name, user.role == "admin" and "admin" in scopes, scopes)
