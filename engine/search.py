"""What an attack is run in: by itself, or in a search, whose names, "best(foolbox:pgd)", are read and written here."""

from collections.abc import Iterable
from typing import Literal, NamedTuple

AUTO = "auto"
SearchKind = Literal["best", "at-saturation", "worst-case"]
_KINDS: tuple[SearchKind, ...] = ("best", "at-saturation", "worst-case")


class Search(NamedTuple):
    """A search, or an attack by itself.

    Attributes:
        kind: "best": the smallest radius of each image, by one attack or several; "at-saturation": the radius where the
            success of an attack stops growing; "worst-case": attacks one after the other, each on the images that none
            before it has fooled; None: the attack by itself.
        inside: the name of the attack, of several with commas between, or "auto".
    """

    kind: SearchKind | None
    inside: str

    @property
    def name(self) -> str:
        """As keys and users have it; `read_search` reads it back."""
        return self.inside if self.kind is None else f"{self.kind}({self.inside})"

    @property
    def members(self) -> tuple[str, ...]:
        """The names of the attacks."""
        return tuple(each.strip() for each in self.inside.split(","))

    @property
    def is_portfolio(self) -> bool:
        """Whether several attacks look for the smallest radius together, or davylamp is to choose them."""
        return self.kind == "best" and names_several(self.inside)


def read_search(name: str) -> Search:
    """What a name means: "foolbox:pgd", "best(foolbox:pgd)", "best(adv-lib:fmn,foolbox:pgd)", "best(auto)"."""
    kind = kind_in(name)
    return Search(kind, name[len(kind) + 1 : -1]) if kind and name.endswith(")") else Search(None, name)


def kind_in(title: str) -> SearchKind | None:
    """The kind of search that the title of a cell begins with, whatever stands behind it."""
    return next((kind for kind in _KINDS if title.startswith(f"{kind}(")), None)


def search_of(kind: SearchKind, names: Iterable[str]) -> Search:
    """A search by these attacks, in this order."""
    return Search(kind, ",".join(names))


def names_several(inside: str) -> bool:
    """Whether a name is that of several attacks, or leaves the choice to davylamp."""
    return "," in inside or inside == AUTO
