"""Warnings for names from before 0.2.0, which still work."""

import warnings
from collections.abc import Mapping


def warn_renamed(owner: str, old: str, new: str) -> None:
    """Warn that `owner.old` is now called `owner.new`. The warning points at the caller of the deprecated name."""
    warnings.warn(f"{owner}.{old} is deprecated: use {owner}.{new}", DeprecationWarning, stacklevel=3)


def current_name(owner: str, name: str, renamed: Mapping[str, str]) -> str:
    """Return the current name of an attribute of the module `owner`, and warn if `name` is an old name.

    `renamed` maps old names to current ones.
    """
    if name in renamed:
        warnings.warn(f"{owner}.{name} is deprecated: use {owner}.{renamed[name]}", DeprecationWarning, stacklevel=3)
    return renamed.get(name, name)
