r"""What a LaTeX table says of its sources: `\cite` behind names, the versions that made the numbers."""

import re
from collections.abc import Collection, Iterable, Mapping

from ... import __version__
from ...adapters.catalogue.lookup import ATTACKS, IMPLEMENTATIONS, LIBRARIES
from ..citations.cite import cite_keys
from ..citations.usage import CitedItem, split_data, split_model
from .latex import LatexStyle, Tex, escape

_NAMED = re.compile(r"[\w.-]+:[\w.+@-]+")


def cited_text(text: str, used: Iterable[CitedItem], style: LatexStyle) -> str:
    r"""LaTeX with `\cite` behind it, if the style has that and there is something to cite."""
    keys = cite_keys(used) if style.cite else ()
    return rf"{text}~\cite{{{','.join(keys)}}}" if keys else text


def cited_name(name: str, style: LatexStyle) -> Tex:
    r"""The name of an attack, an implementation, "best(...)" or "pgd 8/255", with `\cite` of the attack."""
    rows = [IMPLEMENTATIONS[each] for each in _NAMED.findall(name) if each in IMPLEMENTATIONS]
    attacks = [row.attack for row in rows] or [word for word in name.split()[:1] if word in ATTACKS]
    used = [
        CitedItem("attack", attack, ATTACKS[attack].source) for attack in dict.fromkeys(attacks) if attack in ATTACKS
    ]
    return Tex(cited_text(escape(name), used, style))


def versions_sentence(libraries: Collection[str] | None, versions: Mapping[str, str], style: LatexStyle) -> str:
    """A sentence: davylamp, torch and the attack libraries with the versions that ran.

    Args:
        libraries: by the names that they have here; None: all of the versions.
        versions: by the names that they are installed under.
        style: whether they are cited.
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
    """Of torch and of these libraries, as they are installed now."""
    import torch

    there = {LIBRARIES[name].distribution: LIBRARIES[name].version for name in libraries if name in LIBRARIES}
    return {"torch": str(torch.__version__), **{name: version for name, version in there.items() if version}}


def model_tex(name: str, style: LatexStyle) -> str:
    r"""A model, with `\cite`."""
    return cited_text(escape(name), split_model(name), style)


def data_tex(name: str, style: LatexStyle) -> str:
    r"""Data, with `\cite`."""
    return cited_text(escape(name), split_data(name), style)


def made_now(libraries: set[str], style: LatexStyle) -> str:
    """`versions_sentence` what is installed now."""
    return versions_sentence(libraries, installed_versions(libraries), style)


def label_word(text: str) -> str:
    """Letters, digits and dashes, for a label."""
    return "".join(each if each.isalnum() else "-" for each in text).strip("-").lower()
