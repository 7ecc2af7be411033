"""Describes a user's attack in a separate process, so that an implementation can be built without loading its code."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from torch import Tensor

from ...attack import Attack, Implementation, Kind, Knowledge, Parameter
from ...models.identity.digest import ModelIdentity
from ...models.sandbox.isolation import Isolation
from ...parameters import PARAMETERS, SUPPLIED
from ...threat_model import NORMS
from ...user_code_guard import one_line
from .user_attack import Form

_TYPES: Mapping[str, type] = {kind.__name__: kind for kind in (bool, int, float, str)}
_CHOICES: Mapping[str, tuple[Any, ...]] = {
    "kind": get_args(Kind),
    "knowledge": get_args(Knowledge),
    "targeted": ("no", "yes", "only"),
    "order": ("kept", "content"),
    "failure": ("input", "last"),
    "form": get_args(Form),
    "alone": (True, False),
    "says_norm": (True, False),
}
_TEXTS = ("title", "source", "digest", "canonical")
_LISTS = ("norms", "random", "assumed", "reasons")
_MAPPINGS = ("params", "more", "defaults")
_MOST = 200  # entries of a list or a mapping


@dataclass(frozen=True)
class IsolatedAttack:
    """A user's attack whose file is loaded only in a separate process.

    Args:
        where: name of the attack in messages, such as "my_attack.py:MyAttack".
        path: path of the file.
        isolation: limits of the separate process.
        form: the library of the attack's class, see `Form`.
        identity: identity of the attack's code and settings, as computed by the separate process.
        epsilon: radius that is set in an attack instance. None if there is none.
        defaults: default values of the parameters by name.
    """

    where: str
    path: Path
    isolation: Isolation
    form: Form
    identity: ModelIdentity
    epsilon: float | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def run(self, model: Any, call: tuple[Tensor, Tensor, Any, Tensor | None], words: Mapping[str, Any]) -> Tensor:
        """Run the attack, and return the adversarial images, see `run_isolated_attack`.

        `call` has the inputs, the labels, the threat model and the targets.
        """
        from .attack_process import run_isolated_attack

        return run_isolated_attack(self, model, call, words)


def describe_row(row: Implementation, epsilon: float | None, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return a description of a user's implementation in JSON types, which is sent to the parent process."""
    attack, given = row.described, row.given
    assert attack is not None
    more = {
        word: [each.type.__name__, float(each.low), float(each.high), each.meaning] for word, each in row.more.items()
    }
    return {
        "kind": attack.kind,
        "knowledge": attack.knowledge,
        "title": str(attack.title),
        "source": str(attack.source),
        "targeted": row.targeted,
        "order": row.order,
        "failure": row.failure,
        "alone": row.alone,
        "says_norm": row.says_norm,
        "form": given.form,
        "canonical": row.canonical,
        "digest": given.identity.digest,
        "reasons": list(given.identity.reasons),
        "norms": list(row.classes),
        "random": list(row.random),
        "assumed": list(row.assumed),
        "params": dict(row.params),
        "more": more,
        "epsilon": epsilon,
        "defaults": dict(defaults),
    }


def implementation_from_description(facts: Any, name: str, path: Path, isolation: Isolation) -> Implementation:
    """Check a description that the separate process has sent, and build the implementation from it.

    Args:
        facts: the description, a return value of `describe_row`.
        name: name of the attack, "path/to/file.py:NAME".
        path: path of the file.
        isolation: limits of the separate process.

    Raises:
        ValueError: if the description is invalid.
    """
    _check(facts)
    file, _, called = name.rpartition(":")
    texts = {word: one_line(facts[word]) for word in _TEXTS}
    lists = {word: tuple(one_line(each) for each in facts[word]) for word in _LISTS}
    identity = ModelIdentity(texts["digest"], lists["reasons"])
    given = IsolatedAttack(name, path, isolation, facts["form"], identity, facts["epsilon"], facts["defaults"])
    more = {
        word: Parameter(_TYPES[kind], low, high, one_line(meaning))
        for word, (kind, low, high, meaning) in facts["more"].items()
    }
    return Implementation(
        attack=called,
        library=file,
        classes=dict.fromkeys(facts["norms"], name),
        params=facts["params"],
        targeted=facts["targeted"],
        random=lists["random"],
        alone=facts["alone"],
        order=facts["order"],
        failure=facts["failure"],
        described=Attack(called, texts["title"], facts["kind"], facts["knowledge"], texts["source"]),
        given=given,
        more=more,
        says_norm=facts["says_norm"],
        assumed=lists["assumed"],
        canonical=texts["canonical"],
    )


def _check(facts: Any) -> None:
    known = {*_CHOICES, *_TEXTS, *_LISTS, *_MAPPINGS, "epsilon"}
    if not isinstance(facts, dict) or facts.keys() != known:
        raise ValueError("the description of the attack lacks fields, or has unknown ones")
    right = all(facts[word] in choices for word, choices in _CHOICES.items() if isinstance(facts[word], (str, bool)))
    right &= all(isinstance(facts[word], (str, bool)) for word in _CHOICES)
    right &= all(isinstance(facts[word], str) for word in _TEXTS)
    right &= all(isinstance(facts[word], list) and len(facts[word]) <= _MOST for word in _LISTS)
    right = right and all(isinstance(each, str) for word in _LISTS for each in facts[word])
    right &= all(isinstance(facts[word], dict) and len(facts[word]) <= _MOST for word in _MAPPINGS)
    right &= facts["epsilon"] is None or type(facts["epsilon"]) is float
    right = right and len(facts["digest"]) == 20 and all(c in "0123456789abcdef" for c in facts["digest"])
    right = right and bool(facts["norms"]) and all(norm in NORMS for norm in facts["norms"])
    right = right and all(_is_parameter(word, value) for word, value in facts["more"].items())
    right = right and all(
        (name in (*PARAMETERS, *SUPPLIED) or name in facts["more"]) and isinstance(word, str) and word.isidentifier()
        for name, word in facts["params"].items()
    )
    right = right and all(
        name in facts["params"] and type(value) in _TYPES.values() for name, value in facts["defaults"].items()
    )
    if not right:
        raise ValueError("the description of the attack has invalid values")


def _is_parameter(word: str, described: Any) -> bool:
    if not (word.isidentifier() and isinstance(described, list) and len(described) == 4):
        return False
    kind, low, high, meaning = described
    return kind in _TYPES and type(low) is float and type(high) is float and isinstance(meaning, str)
