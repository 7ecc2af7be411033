r"""Citations and versions in LaTeX tables: `\cite` after names, and the versions that computed the numbers."""

import re
from collections.abc import Collection, Iterable, Mapping

from ... import __version__
from ...adapters.catalogue.lookup import ATTACKS, IMPLEMENTATIONS, LIBRARIES
from ..citations.cite import cite_keys
from ..citations.usage import CitedItem, split_data, split_model
from .latex import LatexStyle, Tex, escape

_NAMED = re.compile(r"[\w.-]+:[\w.+@-]+")


def cited_text(text: str, used: Iterable[CitedItem], style: LatexStyle) -> str:
    r"""Append `\cite` with the BibTeX keys of `used` to a LaTeX text, if the style requests citations."""
    keys = cite_keys(used) if style.cite else ()
    return rf"{text}~\cite{{{','.join(keys)}}}" if keys else text


def cited_name(name: str, style: LatexStyle) -> Tex:
    r"""Format the name of an attack or implementation in LaTeX, with `\cite` if the style requests citations."""
    rows = [IMPLEMENTATIONS[each] for each in _NAMED.findall(name) if each in IMPLEMENTATIONS]
    attacks = [row.attack for row in rows] or [word for word in name.split()[:1] if word in ATTACKS]
    used = [
        CitedItem("attack", attack, ATTACKS[attack].source) for attack in dict.fromkeys(attacks) if attack in ATTACKS
    ]
    return Tex(cited_text(escape(name), used, style))


def versions_sentence(libraries: Collection[str] | None, versions: Mapping[str, str], style: LatexStyle) -> str:
    """Return a sentence with the versions of davylamp, torch and the attack libraries.

    Args:
        libraries: attack libraries, by davylamp's names, whose versions are listed. None means all versions in
            `versions`.
        versions: versions by distribution name.
        style: style of the table, which decides whether the versions are cited.
    """
    names = {library.distribution: name for name, library in LIBRARIES.items()}
    wanted = None if libraries is None else {"torch", *(d for d, name in names.items() if name in libraries)}
    kept = {name: version for name, version in versions.items() if wanted is None or name in wanted}
    texts = []
    for name, version in {"davylamp": versions.get("davylamp", __version__), **kept}.items():
        text = escape(f"{name} {version}")
        if name == "davylamp":
            texts.append(rf"{text}~\cite{{davylamp}}" if style.cite else text)
        else:
            texts.append(cited_text(text, [CitedItem("library", names.get(name, name))], style))
    return f"Made with {', '.join(texts)}."


def installed_versions(libraries: Collection[str]) -> dict[str, str]:
    """Return the installed versions of torch and of some attack libraries, by name of the distribution."""
    import torch

    there = {LIBRARIES[name].distribution: LIBRARIES[name].version for name in libraries if name in LIBRARIES}
    return {"torch": str(torch.__version__), **{name: version for name, version in there.items() if version}}


def model_tex(name: str, style: LatexStyle) -> str:
    r"""Format the name of a model in LaTeX, with `\cite` if the style requests citations."""
    return cited_text(escape(name), split_model(name), style)


def data_tex(name: str, style: LatexStyle) -> str:
    r"""Format the name of a data set in LaTeX, with `\cite` if the style requests citations."""
    return cited_text(escape(name), split_data(name), style)


def made_now(libraries: set[str], style: LatexStyle) -> str:
    """Return the sentence of `versions_sentence` for the versions that are installed now."""
    return versions_sentence(libraries, installed_versions(libraries), style)


def label_word(text: str) -> str:
    """Reduce a text to letters, digits and dashes, for a LaTeX label."""
    return "".join(each if each.isalnum() else "-" for each in text).strip("-").lower()
