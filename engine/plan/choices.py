"""What an attack choice means before any model is loaded: its rows in the catalogue, its norm, its parameters."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...adapters import Implementation, ThreatModel, find_implementation, implementations_of
from ...adapters.catalogue.customary import choose_threat_model
from ...adapters.catalogue.lookup import accepts, find_library
from ...adapters.words import radius_text
from ...errors import InvalidInput, Unsupported
from ..searches.kinds import Search, parse_search
from .config import AttackChoice

USUAL_SIZE = 3 * 224 * 224  # components of an image where none is known yet: what a customary radius is then for


def rows_of(choice: AttackChoice, libraries: Sequence[str] = (), *, repaired: bool = False) -> list[Implementation]:
    """The implementations that a choice runs, of the given libraries (empty: of all).

    Raises:
        UnknownName: if there is no such attack or implementation.
        InvalidInput: if the name is neither an attack, a `library:attack` nor a search over one, or no library is left.
    """
    for library in libraries:
        find_library(library)
    search = parse_search(choice.attack)
    name = search.inside
    if search.is_portfolio:
        return [_portfolio_of(choice, search, libraries)]
    if search.kind == "worst-case":
        raise InvalidInput(f"expected the attacks one by one with --stop-when-fooled, got {choice.attack}")
    if set(name) & set("()"):
        wanted = "NAME, LIBRARY:NAME or best(...) or at-saturation(...) of one"
        raise InvalidInput(f"expected an attack as {wanted}, got {choice.attack!r}")
    rows = [choice.row] if choice.row else [find_implementation(name)] if ":" in name else implementations_of(name)
    chosen = [row for row in rows if not libraries or row.library in libraries or row.given is not None]
    if not chosen:
        have = ", ".join(dict.fromkeys(row.library for row in rows))
        raise InvalidInput(f"expected a library that has {name} ({have}), got {', '.join(libraries)}")
    if ":" not in name:
        chosen = [row for row in chosen if repaired or not row.variant]
    if choice.norm is None:
        return chosen
    return [row for row in chosen if choice.norm in row.classes] or chosen


def _portfolio_of(choice: AttackChoice, search: Search, libraries: Sequence[str]) -> Implementation:
    """The row of `best(A,B)`; of `best(auto)` that of the default attacks in the norm, linf where none is given."""
    search = search.choose_members(choice.norm or "linf", targeted=bool(choice.target))
    row = search.find_row()
    wanted = {each.library for each in search.rows(row)}
    if libraries and not wanted <= set(libraries):
        have = ", ".join(sorted(wanted))
        raise InvalidInput(f"expected no --library or {have} with {choice.attack}, got {', '.join(libraries)}")
    return row


def threat_model_of(choice: AttackChoice, rows: Sequence[Implementation], components: int | None = None) -> ThreatModel:
    """The threat model of a choice, completed where it leaves it open.

    Args:
        choice: the attack, perhaps with norm and radius.
        rows: what it runs, as `rows_of` has them.
        components: C x H x W of an image; None: not known yet, and a customary radius that of `USUAL_SIZE`.

    Raises:
        InvalidInput: if its radius has no norm, or does not fit it.
        Unsupported: if no row has the norm.
    """
    threat_model = choose_threat_model(
        rows[0].attack,
        rows,
        components or USUAL_SIZE,
        norm=choice.norm,
        epsilon=choice.epsilon,
        targeted=bool(choice.target),
    )
    if parse_search(choice.attack).searches_radius and choice.epsilon is None:
        return replace(threat_model, epsilon=None)  # the search knows how far to look
    return threat_model


def check_one_norm(choices: Iterable[AttackChoice], libraries: Sequence[str] = (), *, repaired: bool = False) -> None:
    """Raise InvalidInput if one radius for several attacks, given without a norm, would fall into several norms."""
    norms: dict[str, tuple[str, float]] = {}
    for choice in choices:
        if choice.norm is None and choice.epsilon is not None:
            norm = threat_model_of(choice, rows_of(choice, libraries, repaired=repaired)).norm
            norms.setdefault(norm, (choice.attack, choice.epsilon))
    if len(norms) > 1:
        meant = " and ".join(f"{norm} for {attack}" for norm, (attack, _) in norms.items())
        radius = radius_text("linf", next(iter(norms.values()))[1])
        raise InvalidInput(f"expected --norm beside --epsilon {radius}: it would be {meant}; run them one by one")


def spread_parameters(
    attacks: Sequence[Any], parameters: Mapping[str, Any], libraries: Sequence[str] = (), *, repaired: bool = False
) -> tuple[list[dict[str, Any]], list[str]]:
    """Parameters given once for several attacks: for each attack those that a row of it has; and what to say.

    Raises:
        Unsupported: if no attack has one of them.
    """
    rows = [rows_of(AttackChoice(attack), libraries, repaired=repaired) for attack in attacks]
    per_attack = [{name: v for name, v in parameters.items() if any(accepts(r, name) for r in each)} for each in rows]
    notes = []
    for name in parameters:
        without = [attack for attack, values in zip(attacks, per_attack, strict=True) if name not in values]
        if len(without) == len(attacks):
            raise Unsupported(f"expected a parameter of {' or '.join(attacks)}, got {name}: none of them has it")
        if without:
            notes.append(f"{', '.join(without)}: no parameter {name}; run without it")
    return per_attack, notes
