"""A new subject among those of a fitted baseline, whose abilities and items stay as they are (CANARY's fast test)."""

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from .baselines import bootstrap, plain_mean
from .dependence import design_effect
from .gibbs import State, draw_settings, weigh_items
from .grid import make_tables
from .irt import IRTFit, Method, check_responses, choose_model, fit_irt
from .ranking import LEVEL, NOTICED, Ranking, make_ranking, stretch, stretch_note
from .response_model import observe, statistics

FINEST = 400  # items: for more of them the grid of a newcomer's ability is no finer
DRAWS = 4000  # of the newcomer and the baseline together, about
_BLOCK = 2e7  # numbers in a table at once


class Anchor:
    """A fitted baseline: draws of its abilities, and of each item what its responses leave open given such a draw.

    Given the abilities of the baseline and the priors the items are independent, and each has a posterior on the grid
    of the sampler. The chance of a response is its mean over that posterior: no item is taken for known, and a response
    to one says less, the less is known of it. What a newcomer's responses say of the abilities of the baseline is left
    out: the draws are not weighted by its likelihood (a cut posterior, Plummer 2015).

    Args:
        fit: of the baseline.
        responses: that were fitted, shape (N, M); NaN is missing.
        draws: of the fit that are taken, evenly; None: all D that hold the items.
        seed: of every draw.
    """

    def __init__(self, fit: IRTFit, responses: np.ndarray, *, draws: int | None = None, seed: int = 0):
        self.fit, self.responses = fit, responses
        total = len(fit.items["ability"])
        taken = np.linspace(0, total - 1, min(draws or total, total)).round().astype(int)
        raw, difficulty = fit.items["ability"][taken], fit.items["difficulty"][taken]
        log_slope = fit.items.get("log_discrimination", np.zeros_like(fit.items["difficulty"]))[taken]
        self._tables = make_tables(fit.model, len(responses), min(responses.shape[1], FINEST))
        grids = (self._tables.ability, self._tables.difficulties, self._tables.discriminations)
        ability, hard, steep = (_nearest(grid, each) for grid, each in zip(grids, (raw, difficulty, log_slope), strict=True))
        self._generator = torch.Generator().manual_seed(seed)
        settings = draw_settings(self._tables, (ability, hard, steep), self._generator)
        self._state = State(ability, torch.zeros(len(taken), 0, dtype=torch.long), *settings)
        free = fit.model.hierarchical
        centre = raw.mean(1, keepdims=True) if free else np.zeros((len(taken), 1))
        factor = np.exp(log_slope.mean(1, keepdims=True)) if free else np.ones((len(taken), 1))
        self.baseline: np.ndarray = (raw - centre) * factor  # (D, N)
        self.ability: np.ndarray = (self._tables.ability.double().numpy() - centre) * factor  # (D, T)
        self.prior: Tensor = self._tables.ability_prior.points[self._state.where]  # (D, T)

    def log_likelihood(self, newcomer: np.ndarray) -> Tensor:
        """Of a newcomer's responses, at each ability of the grid and for each draw.

        Args:
            newcomer: shape (M,), in [0, 1]; NaN is missing.

        Returns:
            Shape (D, T).
        """
        seen = np.flatnonzero(~np.isnan(newcomer))
        value = observe(newcomer[None], self.fit.model.response, len(self.responses)).values[0].numpy()
        # Items that the baseline and the newcomer answered alike are alike in all that follows.
        columns = np.vstack([np.nan_to_num(self.responses[:, seen], nan=2.0), value[seen]])
        _, first, count = np.unique(columns, axis=1, return_index=True, return_counts=True)
        log = torch.zeros(self.prior.shape)
        for values in np.unique(value[seen[first]]):
            alike = value[seen[first]] == values
            times = torch.from_numpy(count[alike]).float()
            for part, curves in self._curves(seen[first[alike]], values):
                log[part] += torch.einsum("u,uct->ct", times, curves.log())
        return log

    def chances(self, items: Sequence[int] | np.ndarray) -> Tensor:
        """Probability of a response 1 to items, at each ability of the grid and for each draw.

        Args:
            items: their places.

        Returns:
            Shape (items, D, T).
        """
        return torch.cat([curves for _, curves in self._curves(np.asarray(items), 1.0)], 1)

    def draw(self, log: Tensor, count: int) -> np.ndarray:
        """Abilities of a newcomer on the scale of the fit, one in each of as many equal parts of each posterior.

        Args:
            log: log-likelihood, shape (D, T).
            count: for each draw of the baseline.

        Returns:
            Shape (D, count).
        """
        weight = self.weigh(log)
        total = weight.cumsum(1)
        offset = torch.rand(len(total), count, generator=self._generator, dtype=torch.double)
        level = (torch.arange(count) + offset) / count
        place = torch.searchsorted(total, level).clamp_max(total.shape[1] - 1)
        inside = 1 - (total.gather(1, place) - level) / weight.gather(1, place) - 0.5
        step = self.ability[:, 1:2] - self.ability[:, :1]
        return np.take_along_axis(self.ability, place.numpy(), 1) + step * inside.numpy()

    def weigh(self, log: Tensor) -> Tensor:
        """Posterior of a newcomer's ability on the grid for each draw, shape (D, T), from its log-likelihood."""
        return (log + self.prior).double().softmax(1)

    def expect(self, log: Tensor) -> float:
        """Posterior mean of a newcomer's ability on the scale of the fit, from its log-likelihood."""
        return float((self.weigh(log).numpy() * self.ability).sum(1).mean())

    def _curves(self, items: np.ndarray, value: float) -> Iterator[tuple[slice, Tensor]]:
        """Chance, or density, of a response to items, (items, C, T), for C draws after the other."""
        tables, response = self._tables, self.fit.model.response
        observed = observe(self.responses[:, items], response)
        data = torch.where(observed.seen, statistics(observed.values, response), 0.0).float()
        of_value = statistics(torch.tensor(value, dtype=torch.double), response).float()
        chance = torch.einsum("k,ktg->gt", of_value, tables.likelihood).clamp(min=-80).exp()
        size = max(1, int(_BLOCK / len(items) / max(chance.shape)))
        for start in range(0, len(self.prior), size):
            part = slice(start, start + size)
            state = State(*(each[part] for each in self._state))
            yield part, weigh_items(data, tables, state).softmax(-1) @ chance


@dataclass(frozen=True, repr=False)
class Placement:
    """Where a newcomer stands among the subjects of a baseline.

    Attributes:
        newcomer: its name.
        ranking: of the baseline and, last, the newcomer. Means, Borda counts and the bootstrap are over the items that
            the newcomer answered.
        responses: of the newcomer.
        images: that they are about.
        notes: what a reader should know first.
    """

    newcomer: str
    ranking: Ranking
    responses: int
    images: int
    notes: tuple[str, ...] = ()

    @property
    def rank(self) -> int:
        """Among all, 1 the best."""
        return int(self.ranking.rank[-1])

    @property
    def rank_interval(self) -> tuple[int, int]:
        """Best and worst rank of its 95 % interval."""
        return int(self.ranking.rank_low[-1]), int(self.ranking.rank_high[-1])

    @property
    def score(self) -> float:
        """Ability on the scale of the baseline, whose mean is 0."""
        return float(self.ranking.score[-1])

    @property
    def interval(self) -> tuple[float, float]:
        """95 % of the ability."""
        return float(self.ranking.low[-1]), float(self.ranking.high[-1])

    @property
    def beats(self) -> dict[str, float]:
        """P(the newcomer ranks above j), by name of j."""
        return dict(zip(self.ranking.subjects[:-1], self.ranking.beats[-1].tolist(), strict=False))

    def __repr__(self) -> str:
        low, high = self.rank_interval
        count = len(self.ranking.subjects)
        head = f"Placement: {self.newcomer} rank {self.rank} ({LEVEL:.0%}: {low} - {high}) of {count}"
        shown = self.to_frame()[["rank", "subject", "score", "low", "high", "beats"]]
        notes = "".join(f"\n- {note}" for note in self.notes)
        return f"{head}\n{shown.to_string(index=False, float_format='%.3g')}{notes}"

    def _repr_html_(self) -> str:
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in self.notes)
        return f"<p>{html.escape(self.newcomer)}</p>{self.to_frame().to_html(index=False)}<ul>{notes}</ul>"

    def to_frame(self) -> pd.DataFrame:
        """One row for each subject, the best first; `beats` is P(the newcomer ranks above it), NaN for itself."""
        frame = self.ranking.to_frame()
        frame.insert(0, "newcomer", self.newcomer)
        return frame.assign(beats=frame["subject"].map(self.beats))

    def to_dict(self) -> dict[str, Any]:
        """All of it but the draws, in types that JSON has; NaN is None."""
        low, high = self.interval
        about = {"rank": self.rank, "rank_low": self.rank_interval[0], "rank_high": self.rank_interval[1]}
        about |= {"score": self.score, "low": low, "high": high, "beats": self.beats}
        about |= {"responses": self.responses, "images": self.images}
        return {**self.ranking.to_dict(), "newcomer": self.newcomer, "placed": about, "notes": list(self.notes)}


def place_newcomer(
    responses: np.ndarray,
    subjects: Sequence[str],
    newcomer: np.ndarray,
    name: str,
    clusters: Sequence[str] | None = None,
    *,
    model: str = "auto",
    method: Method = "auto",
    seed: int = 0,
    fit: IRTFit | None = None,
) -> Placement:
    """Place a newcomer among the subjects of a baseline, by its responses to some of their items.

    Abilities and items of the baseline are those of its own fit (see `Anchor`); only the newcomer's ability is new.

    Args:
        responses: of the baseline, shape (N, M), in [0, 1], 1 for the subject; NaN is missing.
        subjects: names, length N.
        newcomer: responses to the same items, shape (M,); NaN is missing.
        name: of the newcomer.
        clusters: the image of each item, length M; None: every item is its own.
        model: see `rank_responses`.
        method: see there.
        seed: see there.
        fit: of the baseline, if there is one already.

    Returns:
        Rank and P(it beats j), with intervals stretched by the `design_effect` of the baseline, which for the newcomer
        is that of as many items of an image as it answered.

    Raises:
        ValueError: if the baseline cannot be ranked, or the newcomer answered nothing.
    """
    values = check_responses(responses)
    answers = np.asarray(newcomer, dtype=float)
    seen = ~np.isnan(answers)
    if answers.shape != values.shape[1:] or not seen.any():
        raise ValueError(f"expected responses to some of {values.shape[1]} items, got {seen.sum()} to {answers.shape}")
    if not ((answers[seen] >= 0) & (answers[seen] <= 1)).all():
        raise ValueError(f"expected responses in [0, 1], got {answers[seen].min():g} to {answers[seen].max():g}")
    images = np.arange(len(answers)).astype(str) if clusters is None else np.asarray(clusters)
    if len(subjects) != len(values) or len({*subjects, name}) <= len(values) or len(images) != len(answers):
        got = f"{len(set(subjects))}, {name} and {len(images)}"
        raise ValueError(f"expected {len(values)} different subjects, another and {len(answers)} clusters, got {got}")
    fit = fit_irt(values, choose_model(values, model), method=method, seed=seed) if fit is None else fit
    anchor, effect = Anchor(fit, values, seed=seed), design_effect(fit, values, images.tolist())
    log = anchor.log_likelihood(answers)
    both = np.vstack([values, answers])[:, seen]
    ranking = make_ranking(
        f"{fit.model.name}, {fit.model.response} responses, items anchored",
        (*subjects, name),
        np.append(fit.expected, anchor.expect(log)),
        joint_draws(anchor, log, effect, effect_of_some(effect, images, images[seen])),
        both,
        bootstrap(plain_mean, both, images[seen].tolist(), seed=seed),
        fit,
    )
    problem = fit.diagnostics.problem
    notes = [*([problem] if problem else []), *([stretch_note(effect)] if effect >= NOTICED else [])]
    ranking = replace(ranking, notes=tuple(notes))
    return Placement(name, ranking, int(seen.sum()), len(set(images[seen])), tuple(notes))


def joint_draws(anchor: Anchor, log: Tensor, effect: float, effect_of_newcomer: float) -> np.ndarray:
    """Abilities of the baseline and of a newcomer, stretched about their means by the root of a design effect.

    Args:
        anchor: of N subjects.
        log: log-likelihood of the newcomer, shape (D, T).
        effect: of the baseline.
        effect_of_newcomer: by as many items of an image as it answered.

    Returns:
        Shape (about `DRAWS`, N + 1), the newcomer last.
    """
    count = max(1, DRAWS // len(log))
    baseline, drawn = anchor.baseline.repeat(count, 0), anchor.draw(log, count).reshape(-1, 1)
    return np.hstack([stretch(baseline, effect), stretch(drawn, effect_of_newcomer)])


def effect_of_some(effect: float, clusters: np.ndarray, some: np.ndarray) -> float:
    """The design effect where fewer items of an image were answered: 1 + (m - 1) times the same correlation (Kish).

    Args:
        effect: of all items.
        clusters: the image of each item.
        some: the images of the items that were answered.
    """
    size, fewer = _mean_size(clusters), _mean_size(some)
    return 1 + (effect - 1) * (fewer - 1) / (size - 1) if size > 1 else 1.0


def _mean_size(clusters: np.ndarray) -> float:
    """How many items share an image, as an item sees it."""
    count = np.unique(clusters, return_counts=True)[1]
    return float((count**2).sum() / count.sum())


def _nearest(grid: Tensor, values: np.ndarray) -> Tensor:
    """Places of values on an even grid."""
    step = float(grid[1] - grid[0]) if len(grid) > 1 else 1.0
    place = torch.from_numpy(np.rint((values - float(grid[0])) / step).astype(int))
    return place.clamp(0, len(grid) - 1)
