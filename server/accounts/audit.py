"""The audit log of a server, and limits on failed sign-ins and on registrations."""

import time
from typing import NamedTuple

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from ...errors import Unavailable
from ..database.records import AuditRow

FAILED, WINDOW = "sign-in failed", 15 * 60.0
REGISTERED, _REGISTRATIONS, _DAY = "registered", 5, 24 * 3600.0  # most from one address in a day
_PER_NAME_AND_ADDRESS, _PER_ADDRESS, _PER_NAME = 5, 30, 100  # failed ones in a window


class TooManyAttempts(Unavailable):
    """Raised if there were too many failed sign-ins, or too many registrations from one address."""


class Origin(NamedTuple):
    """Who sent a request, for the audit log and the limits.

    Args:
        who: user name in the request, which may be wrong.
        address: network address of the client.
    """

    who: str
    address: str = ""


def note(session: Session, origin: Origin, action: str, about: str = "") -> None:
    """Add an entry to the audit log."""
    line = {"who": origin.who[:64], "address": origin.address[:64], "action": action[:64], "about": about[:500]}
    session.add(AuditRow(time=time.time(), **line))


def check_rate(session: Session, origin: Origin) -> None:
    """Raise TooManyAttempts if there were too many failed sign-ins for this user name or from this address."""
    since = time.time() - WINDOW
    failed = select(func.count()).where(AuditRow.action == FAILED, AuditRow.time > since)
    who, address = AuditRow.who == origin.who[:64], AuditRow.address == origin.address[:64]
    limits = ((failed.where(who, address), _PER_NAME_AND_ADDRESS), (failed.where(address), _PER_ADDRESS))
    for counted, limit in (*limits, (failed.where(who), _PER_NAME)):
        if (session.scalar(counted) or 0) >= limit:
            raise TooManyAttempts(f"too many failed sign-ins; try again in {WINDOW / 60:.0f} minutes")


def check_registrations(session: Session, origin: Origin) -> None:
    """Raise TooManyAttempts if five users were registered from this address within a day."""
    made = (AuditRow.action == REGISTERED, AuditRow.time > time.time() - _DAY)
    counted = select(func.count()).where(*made, AuditRow.address == origin.address[:64])
    if (session.scalar(counted) or 0) >= _REGISTRATIONS:
        raise TooManyAttempts(f"{_REGISTRATIONS} users registered from this address within a day; try again tomorrow")
