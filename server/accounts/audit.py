"""The log of who did what, and how often somebody tried to sign in."""

import time
from typing import NamedTuple

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from ...errors import Unavailable
from ..database.records import AuditRow

FAILED, WINDOW = "sign-in failed", 15 * 60.0
_PER_NAME_AND_ADDRESS, _PER_ADDRESS, _PER_NAME = 5, 30, 100  # failed ones in a window


class TooManyAttempts(Unavailable):
    """Too many attempts: wait."""


class Origin(NamedTuple):
    """From where something is asked for.

    Args:
        who: name of the user, as it was given.
        address: of the machine.
    """

    who: str
    address: str = ""


def note(session: Session, origin: Origin, action: str, about: str = "") -> None:
    """Write a line into the log."""
    line = {"who": origin.who[:64], "address": origin.address[:64], "action": action[:64], "about": about[:500]}
    session.add(AuditRow(time=time.time(), **line))


def check_rate(session: Session, origin: Origin) -> None:
    """Raise TooManyAttempts if sign-ins failed too often: of this name from there, from there, or of this name."""
    since = time.time() - WINDOW
    failed = select(func.count()).where(AuditRow.action == FAILED, AuditRow.time > since)
    who, address = AuditRow.who == origin.who[:64], AuditRow.address == origin.address[:64]
    limits = ((failed.where(who, address), _PER_NAME_AND_ADDRESS), (failed.where(address), _PER_ADDRESS))
    for counted, limit in (*limits, (failed.where(who), _PER_NAME)):
        if (session.scalar(counted) or 0) >= limit:
            raise TooManyAttempts(f"too many attempts to sign in failed; try again in {WINDOW / 60:.0f} minutes")
