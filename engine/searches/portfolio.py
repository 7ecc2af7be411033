"""Portfolio search: several attacks that share their best examples and one query budget."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ...adapters import (
    AttackResult,
    Classifier,
    Implementation,
    ThreatModel,
    canonical_attack,
    find_implementation,
)
from ...adapters.catalogue.lookup import accepts_parameter, check_support, find_library, load_class
from ...adapters.catalogue.step_size import resolve_step_size
from ...adapters.models.images import check_images
from ...adapters.parameters import SUPPLIED
from ...adapters.paths import is_file_name
from ...adapters.running.judge import perturbation_distances
from ...adapters.running.sampling import clean_logits
from ...deprecation import takes_old_names
from ...errors import InvalidInput, Unsupported
from .kinds import AUTO, Grid, Search, Values, combinations, joint_row
from .portfolio_schedule import FEWEST, Limits, PortfolioSchedule
from .radius_search import RadiusSearch, largest_change, radius_grid
from .single import round_to_8bit

MAX_QUERIES = 2000  # for each image: AttackBench's limit
_VERSION = "5"  # part of the key of a run, raised whenever the search changes
_NEAREST_CLASS = "adv-lib:deepfool"
# The attacks of best(auto), chosen on the digits models: tools/best_effort/RESULTS.md.
_DEFAULTS: Mapping[str, tuple[str, ...]] = {
    "linf": ("adv-lib:fab-t", "adv-lib:fmn@fixed", "adv-lib:fab", "adv-lib:apgd-dlr"),
    "l2": (
        "adv-lib:ddn@fixed",
        "adv-lib:fmn@fixed",
        _NEAREST_CLASS,
        "adv-lib:pdgd",
        "adv-lib:alma@fixed",
    ),
}


class Portfolio(Search):
    """Portfolio search: `best(A,B,...)` with chosen attacks, or `best(auto)` with attacks that davylamp chooses."""

    kind = "best"
    searches_radius = finds_smallest = True
    stands_for_several = True
    runs = 8
    why_no_surrogate = RadiusSearch.why_no_surrogate

    def choose_members(self, norm: str, *, targeted: bool) -> "Portfolio":
        """Return a copy in which "auto" is replaced by the attacks that davylamp chooses for the norm.

        DeepFool is omitted if `targeted`, because it cannot be targeted.

        Raises:
            Unsupported: if davylamp has no choice for the norm.
        """
        return Portfolio(",".join(default_names(norm, targeted=targeted))) if self.inside == AUTO else self

    def find_row(self) -> Implementation:
        """Return an implementation that represents all attacks of the search, with their common norms.

        Raises:
            InvalidInput: if a name is missing, occurs twice, or is not a `library:attack`.
            Unsupported: if an attack is a user's attack or makes one perturbation for all images, or if the attacks
                have no norm in common.
            UnknownName: if there is no such attack.
        """
        for name in self.members:
            if ":" not in name or set(name) & set("()"):
                raise InvalidInput(f"expected every attack in best(...) as LIBRARY:NAME, got {name!r}")
            if is_file_name(name):
                raise Unsupported(_run_users_attack(name))
        if len(set(self.members)) < len(self.members):
            raise InvalidInput(f"expected different attacks in best(...), got {', '.join(self.members)}")
        rows = [find_implementation(name) for name in self.members]
        if universal := next((row.name for row in rows if row.universal), ""):
            raise Unsupported(f"{universal} makes one perturbation for all images, so it has no radius for each image")
        joint = joint_row(",".join(self.members), rows, "Best", "minimum-norm")
        if not joint.classes:
            raise Unsupported(f"{', '.join(self.members)} have no norm in common")
        return replace(joint, params={name: name for row in rows for name in row.params if name not in SUPPLIED})

    def version(self, row: Implementation) -> str:
        """Return the version of the portfolio search and the versions of all libraries in it, as one text."""
        libraries = dict.fromkeys(each.library for each in self.rows(row))
        versions = [f"{name} {find_library(name).version}" for name in libraries]
        return f"search {_VERSION}, {', '.join(versions)}"

    def complete_parameters(
        self, row: Implementation, given: Mapping[str, Any], epsilon: float | None = None, *, defaults: bool = False
    ) -> dict[str, Any]:
        """Add the default query budget to the given parameters.

        The search chooses all other parameters of the attacks.
        """
        del row, epsilon, defaults
        return {"max_queries": MAX_QUERIES, **given}

    def check(self, row: Implementation, rules: ThreatModel, components: int, given: Values, grid: Grid) -> None:
        """Raise an error for fewer than two attacks, too few queries, or settings that an attack does not support."""
        settings = [{**given, **values} for values in combinations(grid)]
        _check(self.rows(row), rules, components, settings, given["max_queries"])

    def run(self, row: Implementation, *nouns: Any, **options: Any) -> AttackResult:
        """Run `search_portfolio`."""
        del row
        return search_portfolio(self.members, *nouns, **options)


def default_names(norm: str, *, targeted: bool = False) -> tuple[str, ...]:
    """Return the names of the attacks of `best(auto)` for a norm.

    DeepFool is omitted from a targeted search, because it cannot be targeted.

    Raises:
        Unsupported: if davylamp has no choice for the norm.
    """
    if norm not in _DEFAULTS:
        raise Unsupported(
            f"best(auto) supports {' and '.join(_DEFAULTS)}, not {norm}; choose the attacks, as in best(A,B)"
        )
    return tuple(name for name in _DEFAULTS[norm] if not (targeted and name == _NEAREST_CLASS))


@dataclass(frozen=True, kw_only=True)
class PortfolioResult(AttackResult):
    """Result of `search_portfolio`: the nearest example of each image over all attacks, and the total cost.

    The inherited `budget` is the distance of each example, and `curves` has only judged points.

    Args:
        runs: number of attack runs of each image, (N,) int64.
        winner: index of the attack that found the example of each image, (N,) int64; -1 without an example.
        searched: largest radius tried for each image, (N,) float64; inf if a minimum-norm attack ran on the image.
    """

    runs: Tensor
    winner: Tensor
    searched: Tensor


@takes_old_names()
def search_portfolio(  # noqa: PLR0913 - the nouns of run_attack by position, the choices by keyword
    attacks: list[str] | tuple[str, ...],
    classifier: Classifier,
    inputs: Tensor,
    labels: Tensor,
    threat_model: ThreatModel,
    *,
    max_queries: int = MAX_QUERIES,
    targets: Tensor | None = None,
    seed: int = 0,
    first: int | Tensor = 0,
    logits: Tensor | None = None,
    grid: Mapping[str, Sequence[Any]] | None = None,
    eight_bit: bool = False,
    progress: Callable[[int], object] | None = None,
    **parameters: Any,
) -> PortfolioResult:
    """Search for the smallest change of each image with several attacks that share examples and a query budget.

    The attacks run in this order:

    1. Opening: the first attack uses a few passes and gives each image its first radius.
    2. In l2, adv-lib's DeepFool makes a single step towards the nearest class; the other attacks go towards the
       likeliest class. The step takes classes + 1 passes, and is omitted if this is more than an eighth of all passes.
       DeepFool has no other round, unless DeepFool is the first attack.
    3. PDGD gets one block of 200 passes, then ALMA one block of 300 passes, because both start far from the image. If
       fewer passes remain, the attack gets all of them. PDGD is omitted below 110 passes, ALMA below 140 passes.
    4. The attacks take rounds, with 48 passes per image in the first round and twice as many in each further round,
       until only a reserve of `max_queries` remains.
    5. In linf and l2, FMN (if it is among the attacks) starts at the nearest example of each image. This run uses up to
       33 passes of the reserve, at most a fifth of all passes. Except in l0, six more passes bisect the line between
       each example and its image.

    In linf, every other round of FMN also starts at the nearest example. On a random model, no run starts at an
    example, because the example may no longer fool the model. On a random model, each pass of the bisection and of
    DeepFool's step counts as `eot` passes.

    Every queried point counts: the nearest point that fools the model is judged like a returned example. A minimum-norm
    attack gets as many steps as its round allows, with a step length derived from the best radius so far. A
    fixed-budget attack runs below the best radius: farther below after a success, nearer after a failure. For images
    that are not fooled yet, its radius grows. Step sizes, learning rates and seeds vary between rounds
    (`portfolio_parameters`). An attack that crashes on images takes no further round on these images; the other attacks
    continue.

    Args:
        attacks: names of at least two implementations, such as "adv-lib:fmn" and "foolbox:pgd". The first one makes the
            opening.
        classifier: the model under attack.
        inputs: clean images in [0, 1], shape (N, C, H, W).
        labels: ground truth, int64, shape (N,).
        threat_model: norm, targeted, and optionally a radius. With a radius, only examples within the radius are
            successes.
        max_queries: largest number of forward plus backward passes of each image over all attacks, at least 8.
        targets: target classes, shape (N,), for a targeted threat model.
        seed: random seed.
        first: index of the first image in the whole data set, or the index of each image, as in `run_attack`.
        logits: logits of the clean images. None to compute them.
        grid: several values of further parameters, by parameter. An attack takes a different combination of values in
            each round.
        eight_bit: whether success and distance are measured on 8-bit examples, which are returned. The curves then have
            only the distances at the end of each run.
        progress: called with the increase in progress since the last call, as a number of images.
        **parameters: canonical parameters. Each parameter is passed to every attack that has it, instead of the value
            that the search would choose.

    Returns:
        The result, as of a minimum-norm implementation with the name `best(adv-lib:fmn,foolbox:pgd)`.

    Raises:
        Unsupported: if an attack does not support the settings, makes one perturbation for all images, or is a user's
            attack.
        InvalidInput: if an argument has a wrong value.
        AttackFailed, ModelFailed: if every run crashed.
    """
    search = Portfolio(",".join(attacks))
    row = search.find_row()
    rows = search.rows(row)
    check_images(inputs)
    components = inputs[0].numel()
    settings = [{**parameters, **choice} for choice in combinations(grid or {})]
    _check(rows, threat_model, components, settings, max_queries)
    for each in rows:
        load_class(each, threat_model.norm)
    with classifier.frozen():
        aims: dict[str, Any] = {"targets": targets, "logits": logits, "seed": seed}
        base = _untouched(row, classifier, inputs, labels, replace(threat_model, epsilon=None), **aims)
        widest = threat_model.epsilon or largest_change(threat_model.norm, components)
        places = first if isinstance(first, Tensor) else torch.arange(len(labels), device="cpu") + first
        limits = Limits(max_queries, _first_radius(rows, threat_model, components), widest, eight_bit)
        turns = PortfolioSchedule(rows, classifier, inputs.detach().float(), base, places, limits, settings)
        turns.run_all(progress)
    nearest = turns.state.finish_within(threat_model)
    curves = tuple(map(tuple, turns.state.curves))
    result = PortfolioResult(
        **{**vars(nearest), "parameters": {**parameters, "max_queries": max_queries}, "curves": curves},
        runs=turns.state.runs,
        winner=turns.state.winner,
        searched=turns.searched,
    )
    return round_to_8bit(result, classifier, inputs) if eight_bit else result


def _check(
    rows: Sequence[Implementation], rules: ThreatModel, components: int, settings: Sequence[Values], most: int
) -> None:
    """Raise an error if there are fewer than two attacks, fewer than 8 passes, or unsupported settings."""
    names = ",".join(row.name for row in rows)
    if len(rows) < 2:
        raise InvalidInput(f"expected at least two attacks, got {names}; use best({names}) to search with one attack")
    if not isinstance(most, int) or most < FEWEST:
        raise InvalidInput(f"expected max_queries of best(...) as a whole number >= {FEWEST}, got {most!r}")
    top = _first_radius(rows, rules, components)
    for each in rows:
        fixed = canonical_attack(each).kind == "fixed-budget"
        ball = replace(rules, epsilon=top if fixed else None)
        for values in settings:
            taken = {name: value for name, value in values.items() if accepts_parameter(each, name)}
            check_support(each, ball, resolve_step_size(taken, top if fixed else None))
            if lost := [name for name in values if not any(accepts_parameter(other, name) for other in rows)]:
                raise Unsupported(f"none of {names} has parameter {', '.join(lost)}")


def _run_users_attack(name: str) -> str:
    """Return the error message for a user's attack in a portfolio, which is not supported.

    The message names a different way to run the attack.
    """
    refused = f"{name}: best(A,B) accepts attacks from libraries, not from files"
    row = find_implementation(name)
    if row.universal:
        return f"{refused}; it makes one perturbation for all images: run it without best(...)"
    if canonical_attack(row).kind == "minimum-norm":
        return f"{refused}; it is a minimum-norm attack: run it without best(...)"
    return f"{refused}; search with this attack alone: best({name})"


def _first_radius(rows: Sequence[Implementation], threat_model: ThreatModel, components: int) -> float | None:
    """Return the first radius of fixed-budget attacks for images that are not fooled; None without such an attack."""
    fixed = [row for row in rows if canonical_attack(row).kind == "fixed-budget"]
    return radius_grid(fixed[0], threat_model, components, 1).upper if fixed else None


def _untouched(  # noqa: PLR0913 - what a result is made of
    row: Implementation,
    classifier: Classifier,
    inputs: Tensor,
    labels: Tensor,
    threat_model: ThreatModel,
    *,
    targets: Tensor | None,
    logits: Tensor | None,
    seed: int,
) -> AttackResult:
    """Return the result before any attack: no queries are counted, and no image is fooled."""
    logits = clean_logits(classifier, inputs, labels, logits)
    labels = labels.to(inputs.device, torch.long)
    none, images = torch.zeros_like(labels), inputs.detach().float()
    return AttackResult(
        implementation=Portfolio(row.attack).name,
        threat_model=threat_model,
        parameters={},
        seed=seed,
        adv_inputs=images.clone(),
        logits=logits,
        adv_logits=logits.clone(),
        labels=labels,
        attacked=logits.argmax(1) == labels,
        success=none.bool(),
        success_8bit=none.bool(),
        distances=perturbation_distances(images, images),
        forwards=none.clone(),
        backwards=none.clone(),
        seconds=torch.zeros(len(labels), dtype=torch.double, device="cpu"),
        violations=((),) * len(labels),
        targets=targets,
        knowledge=canonical_attack(row).knowledge,
        draws=classifier.draws if classifier.random else 0,
        eot=classifier.eot if classifier.random else 1,
        draws_fooled=torch.zeros_like(none, dtype=torch.double) if classifier.random else None,
    )
