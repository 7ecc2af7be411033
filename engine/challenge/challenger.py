"""Plans and runs all attacks of a challenge, and collects their results."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from ...adapters import Classifier
from ...adapters.data.datasets import Data
from ...adapters.result import UNSTEADY
from ...adapters.running.requirements import has_gradients
from ...adapters.running.sampling import clean_logits, judge_outputs, sampling_context
from ...adapters.threat_model import ThreatModel
from ...errors import DavylampError, InvalidInput, Unsupported
from ..checks.check_folder import check_folder
from ..plan.build_plan import make_plan
from ..plan.config import AttackChoice, Config
from ..plan.plan import Plan
from ..probes.probe_cell import largest_radius
from ..run.evaluate import evaluate
from ..store.columns import read_examples
from ..store.results import CleanResult, Results, read_outcomes
from ..store.store import ResultsStore
from .attempts import (
    BLACK,
    WHITE,
    Accuracy,
    AttackOutcome,
    Part,
    accuracy_shown,
    accuracy_under_attack,
    by_attacker,
    failed_attempt,
    outcome_from_record,
    worst_case,
)
from .challenge_result import ChallengeResult
from .challenge_verdict import cumulative_accuracy, decide_verdict, share_text
from .gradient_variants import OF_PROBABILITIES, with_probability_mean
from .suite import (
    ChallengeBudget,
    black_boxes,
    check_norm,
    gradient_attacks,
    single_step,
    targeted_attacks,
)

_FRESH = 7919  # seed offset of the samples that judge the chosen examples again
Say = Callable[[AttackOutcome], object]


@dataclass(frozen=True)
class ChallengedModel:
    """The defended model of a challenge, and the other models on which examples are made.

    Args:
        name: name of the defended model.
        model: the defended model.
        original: name of the undefended model; "" if there is none.
        stand_ins: how gradients pass through the defence in each gradient variant, by the variant's model name.
        models: the undefended model, the gradient variants and the surrogates, by name.
        surrogates: names of the models whose examples are transferred, without the undefended model.
    """

    name: str
    model: Classifier
    original: str
    stand_ins: Mapping[str, str]
    models: Mapping[str, Classifier]
    surrogates: tuple[str, ...] = ()


class ChallengeRunner:
    """Runs the attacks of a challenge on one defended model.

    Runs are stored in a results folder. If a challenge is interrupted, finished runs are not repeated.

    Args:
        defendant: the defended model and the other models of the challenge.
        data: images and labels.
        data_name: name of the data in the results folder.
        folder: results folder.
        norm: norm of the radius, "linf" or "l2".
        epsilon: radius.
        effort: budget of the attacks. For a deterministic model, `eot` is set to 1.
        seed: random seed.
        say: function that is called with the result of each attack, when the attack is finished.
    """

    def __init__(  # noqa: PLR0913 - what is attacked by position, the choices by keyword
        self,
        defendant: ChallengedModel,
        data: Data,
        data_name: str,
        folder: str | Path,
        *,
        norm: str,
        epsilon: float,
        effort: ChallengeBudget,
        seed: int = 0,
        say: Say | None = None,
    ):
        check_norm(norm)
        largest = largest_radius(ThreatModel(norm, epsilon), data.inputs[0].numel())  # type: ignore[arg-type]
        if not 0 < epsilon < largest:
            raise InvalidInput(f"expected epsilon above 0 and below {largest:.3g} in {norm}, got {epsilon:g}")
        self.defendant, self.data, self.data_name, self.seed = defendant, data, data_name, seed
        self.norm, self.epsilon, self.largest = norm, epsilon, largest
        self.effort = effort if defendant.model.random else replace(effort, eot=1)
        self.store, self.say, self.attempts = ResultsStore(folder), say or (lambda _: None), []
        self.ways, self.models = dict(defendant.stand_ins), {**defendant.models, defendant.name: defendant.model}
        self._right: dict[str, np.ndarray] = {}

    def run(self) -> ChallengeResult:
        """Run all attacks in order, and return the result of the challenge with its verdict.

        Raises:
            DavylampError: If the model cannot be used on these images, or if no attack gave a result.
            Unsupported: If the model has no gradients, so that adaptive attacks are impossible.
        """
        self._check_gradients()
        rules = (self.norm, self.epsilon, self.effort)
        classes = self._classes
        self._check_classes()
        direct, is_random = gradient_attacks(*rules, classes), self.defendant.model.random
        if self.defendant.original:
            self._attack("undefended", (*direct, *targeted_attacks(*rules, classes)), self.defendant.original)
        plain, direct = direct, gradient_attacks(*rules, classes, is_random=is_random)
        self._attack("white-box", direct, self.defendant.name)
        for name in self.defendant.stand_ins:
            self._attack("white-box", direct, name)
        best = self._best_attempt.made_on
        self._attack("white-box", targeted_attacks(*rules, classes), best)
        if is_random:
            self._attack("white-box", direct, self._averaging_probabilities(best))
        self._attack("single step", single_step(self.norm, self.epsilon), self.defendant.name)
        others = [name for name in (self.defendant.original, *self.defendant.surrogates) if name]
        for name in others:
            self._attack("transfer", plain, name)
        scores, decisions = black_boxes(*rules)
        self._attack("scores", (scores,), self.defendant.name)
        self._attack("decisions", (decisions,), self.defendant.name)
        self._widen(self._best_attempt)
        return self._conclude()

    @cached_property
    def _classes(self) -> int:
        return self.defendant.model.check(self.data.inputs[:1].to(self.defendant.model.device)).shape[1]

    def _check_gradients(self) -> None:
        model, inputs = self.defendant.model, self.data.inputs[:1]
        model.check(inputs.to(model.device), self.data.labels[:1])
        if not has_gradients(model, inputs.to(model.device)):
            gives = "labels only" if model.outputs == "labels" else "no gradients"
            raise Unsupported(
                f"adaptive attacks need a model with gradients, but {self.defendant.name} returns "
                f"{gives}; evaluate it with decision-based attacks, or with `surrogate`"
            )

    def _check_classes(self) -> None:
        for name, model in self.defendant.models.items():
            classes = model.predict_logits(self.data.inputs[:1].to(model.device)).shape[1]
            if classes != self._classes:
                got = f"{classes} of {name}"
                raise InvalidInput(f"expected {self._classes} classes as in {self.defendant.name}, got {got}")

    @property
    def _best_attempt(self) -> AttackOutcome:
        """Result of the gradient attack that fools the most images, over all gradient variants of the defence."""
        made = by_attacker(self.attempts, "white-box")
        return min(made, key=lambda attempt: (not attempt.usable.any(), attempt.accuracy.value))

    def _averaging_probabilities(self, name: str) -> str:
        """Add a variant of a randomised model whose probabilities are averaged over samples (EOT).

        Returns:
            Name of the variant.
        """
        twin = f"{name} (probabilities)"
        self.models[twin], self.ways[twin] = with_probability_mean(self.models[name], twin), OF_PROBABILITIES
        return twin

    def _widen(self, best: AttackOutcome) -> None:
        """Run the best attack again at twice the radius, and so on.

        The last radius is the one at which no image is correct, or at which every image can be made grey.
        """
        epsilon, fooled = self.epsilon, worst_case(by_attacker(self.attempts, *WHITE, *BLACK))
        right = self._right_when_clean(self.defendant.name)
        while epsilon < self.largest and accuracy_under_attack(right, fooled).value > 0:
            epsilon = min(2 * epsilon, self.largest)
            rules = (self.norm, epsilon, self.effort, self._classes)
            choices = gradient_attacks(*rules, is_random=self.defendant.model.random) + targeted_attacks(*rules)
            same = [choice for choice in choices if choice.attack == best.attack]
            for attempt in self._attack("larger radius", same, best.made_on):
                fooled = np.maximum(fooled, attempt.fooled)

    def _attack(self, part: Part, choices: Sequence[AttackChoice], made_on: str) -> list[AttackOutcome]:
        """Run attacks on one model, and judge their examples.

        Returns:
            The result of each attack.
        """
        if not choices:
            return []
        judged_on = made_on if part == "undefended" else self.defendant.name
        models = {judged_on: self.models[judged_on]}
        surrogates = {} if made_on == judged_on else {made_on: self.models[made_on]}
        made = [*self._run(part, choices, models, surrogates, made_on)]
        for attempt in made:
            self.attempts.append(attempt)
            self.say(attempt)
        return made

    def _run(
        self,
        part: Part,
        choices: Sequence[AttackChoice],
        models: dict[str, Classifier],
        surrogates: dict[str, Classifier],
        made_on: str,
    ) -> list[AttackOutcome]:
        config = Config(
            models=tuple(models),
            attacks=tuple(choices),
            data=self.data_name,
            measures=("effect",),
            seeds=(self.seed,),
            surrogate=tuple(surrogates),
            device=str(self.defendant.model.device),
            keep_images=True,
            judge_samples=self.effort.judge_samples,
            eot=self.effort.eot,
        )
        way = self.ways.get(made_on, "")
        try:
            plan = make_plan(config, models=models, data=self.data, surrogates=surrogates)
        except DavylampError as error:
            if not self.attempts:  # no attack works on this model
                raise
            where = made_on, way, self._right_when_clean(next(iter(models))), str(error)
            return [failed_attempt(part, (choice.attack, choice.epsilon or 0.0), *where) for choice in choices]
        summary = evaluate(plan, self.store)
        done = {outcome.cell.key: outcome for outcome in self._outcomes.done}
        made = []
        for cell in plan.cells:
            if cell.key in done:
                made.append(outcome_from_record(part, done[cell.key], made_on, way))
                continue
            reason = summary.failed.get(cell.key, "it has no record")
            if not any(each.outcome is not None for each in [*self.attempts, *made]):
                raise InvalidInput(f"no attack runs on {made_on}: {reason}")
            asked = cell.attack, cell.threat_model.epsilon or 0.0
            made.append(failed_attempt(part, asked, made_on, way, self._right_when_clean(cell.subject.model), reason))
        return made + self._left_out(part, plan, made_on, way)

    def _left_out(self, part: Part, plan: Plan, made_on: str, way: str) -> list[AttackOutcome]:
        """Return a failed result, with the reason, for each attack that the plan has left out."""
        planned = {place for places in plan.choices.values() for place in places}
        gone = [choice for place, choice in enumerate(plan.config.attacks) if place not in planned]
        if not gone:
            return []
        right = self._right_when_clean(plan.config.models[0])
        why = "; ".join(dict.fromkeys(plan.failed.values())) or "no library supports it for this model"
        asked = ((choice.attack, choice.epsilon or 0.0) for choice in gone)
        return [failed_attempt(part, each, made_on, way, right, f"left out: {why}") for each in asked]

    @property
    def _outcomes(self) -> Results:
        return read_outcomes(self.store.folder)

    def _right_when_clean(self, name: str) -> np.ndarray:
        """Return whether a model classifies each clean image correctly, (n,) bool. Wrong images are not attacked."""
        if name not in self._right:
            model = self.models[name]
            labels = self.data.labels.to(model.device)
            with model.frozen():
                logits = clean_logits(model, self.data.inputs.to(model.device), labels)
            self._right[name] = (logits.argmax(1) == labels).cpu().numpy()
        return self._right[name]

    def _conclude(self) -> ChallengeResult:
        mine = [attempt for attempt in self.attempts if attempt.part != "undefended"]
        plain = by_attacker(self.attempts, "undefended")
        direct = by_attacker(mine, *WHITE, *BLACK)
        right = [self._right_when_clean(self.defendant.name), *(each.attacked for each in direct)]
        attacked = np.logical_and.reduce(right)  # they differ if its outputs vary
        fooled = self._fooled(direct, attacked)
        worst = accuracy_shown(direct, attacked, fooled)
        outcomes = _of_attempts(self._outcomes, self.attempts)
        checks = tuple(check_folder(outcomes, models=[self.defendant.name]))
        clean = _clean_accuracy(outcomes, direct)
        compared = any(attempt.usable.any() for attempt in plain)
        undefended = accuracy_under_attack(plain[0].attacked, worst_case(plain)) if compared else None
        draws = (self.effort.judge_samples, self.effort.eot) if self.defendant.model.random else None
        curve = cumulative_accuracy(by_attacker(mine, "larger radius"), attacked, fooled)
        gone = next((radius for radius, left in curve if left.value == 0), None)
        ruling = decide_verdict(clean, worst, undefended, mine, checks, gone, draws)
        if any(line.startswith(self.defendant.name) for line in outcomes.unsteady):
            left = f"not judged, because its noise fools it without an attack; {share_text(worst)} remains"
            ruling = ruling._replace(verdict="unknown", sentence=f"{UNSTEADY}; {left}")
        notes = () if draws is None else (_repeated_note(accuracy_under_attack(attacked, fooled > 0), draws[0]),)
        return ChallengeResult(
            model=self.defendant.name,
            original=self.defendant.original,
            norm=self.norm,
            epsilon=self.epsilon,
            clean=clean,
            worst=worst,
            clean_undefended=_clean_accuracy(outcomes, plain) if plain else None,
            undefended=undefended,
            radii=((self.epsilon, worst), *curve),
            attempts=tuple(self.attempts),
            ruling=ruling,
            checks=checks,
            notes=notes,
        )

    def _fooled(self, attempts: Sequence[AttackOutcome], attacked: np.ndarray) -> np.ndarray:
        """Return the largest fooled rate of each image over all attacks, (n,).

        For a randomised model, the largest of several estimated rates would be biased upwards. Therefore the best
        example of each image is judged again on new samples. If a single attack has a larger mean rate than these new
        rates, the rates of this attack are returned.
        """
        fooled, model = worst_case(attempts), self.defendant.model
        done = [attempt for attempt in attempts if attempt.outcome is not None]
        if not model.random or not done:
            return fooled
        best = np.argmax([attempt.fooled for attempt in done], axis=0)
        kept = [read_examples(self.store, attempt.outcome.cell) for attempt in done if attempt.outcome is not None]
        examples = torch.stack([kept[place][image] for image, place in enumerate(best)]).to(model.device)
        labels = self.data.labels.to(model.device)
        with model.frozen(), sampling_context(model, draws=self.effort.judge_samples):
            share = judge_outputs(model, examples, labels, None, self.seed + _FRESH).share
        assert share is not None
        again = np.where(fooled > 0, share.cpu().numpy(), 0.0)
        return max(again, *(each.fooled for each in done), key=lambda fooled: float(fooled[attacked].sum()))


def _repeated_note(left: Accuracy, draws: int) -> str:
    several = f"against an attacker who tries {draws} samples, {share_text(left)} remains"
    return f"the accuracy is that of one sample; {several}"


def _of_attempts(outcomes: Results, attempts: Sequence[AttackOutcome]) -> Results:
    keys = {attempt.outcome.cell.key for attempt in attempts if attempt.outcome is not None}
    done = tuple(each for each in outcomes.done if each.cell.key in keys)
    images = {each.cell.subject.data_digest for each in done}
    failed = tuple(each for each in outcomes.failed if each[0].subject.data_digest in images)
    clean = {key: each for key, each in outcomes.clean.items() if each.subject.data_digest in images}
    return replace(outcomes, done=done, failed=failed, clean=clean)


def _clean_accuracy(outcomes: Results, attempts: Sequence[AttackOutcome]) -> Accuracy:
    clean: CleanResult | None = None
    for attempt in attempts:
        if attempt.outcome is not None:
            clean = outcomes.clean.get(attempt.outcome.cell.subject.key)
    right = attempts[0].attacked.astype(float) if clean is None else clean.columns["CA"]
    return accuracy_under_attack(right, np.zeros(len(right)))
