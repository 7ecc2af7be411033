"""Probes of an attack run on a few images: more steps, a very large radius, random noise, and planted examples."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import median
from typing import Any

import torch
from torch import Tensor

from ...adapters import AttackResult, Classifier, ThreatModel, library_defaults, run_attack
from ...adapters.catalogue.default_threat_model import default_epsilon
from ...adapters.catalogue.lookup import accepts_parameter
from ...adapters.catalogue.step_size import resolve_step_size
from ...adapters.criterion import is_fooled
from ...adapters.running.sampling import clean_logits, judge_outputs
from ...errors import DavylampError, InvalidInput, Unsupported
from ..attack_run import AttackRun, is_single_step
from ..attack_shard import attack_shard
from .binarization_test import plant_adversarial_example, random_points

IMAGES = 8
TIMES = 4  # Carlini et al. 2019 recommend twice the iterations; early stopping shows at four times
DRAWS = 10  # random perturbations of each image; Carlini et al. 2019 recommend 10 000, which takes too long
MOST_QUERIES = 2000  # most passes per image of one extra run


def probe_cell(cell: AttackRun, classifier: Classifier, inputs: Tensor, labels: Tensor, *, images: int = IMAGES) -> Any:
    """Run the probes that some failure indicators of a run need.

    The probes use the first images that the classifier classifies correctly. For a radius search, the attack inside the
    search is probed.

    - "more-steps": the attack with four times the steps and, if limited, four times `max_queries`.
    - "unbounded": the attack at a radius at which every image can be made uniformly grey (linf 0.5 and the equivalent
      in other norms; for l0 all components), with the step size scaled.
    - "random-noise": ten random perturbations at the run's radius.
    - "active-test": the binarization test.

    If the run has no radius, "random-noise" and "active-test" use the median distance of the attack's examples. Without
    examples, they use the customary radius (`default_epsilon`).

    Args:
        cell: attack run.
        classifier: the run's model.
        inputs: the run's images in [0, 1], shape (N, C, H, W).
        labels: ground truth, shape (N,).
        images: number of images to attack.

    Returns:
        JSON types:

        - "images": indices of the images in the data.
        - "epsilon": radius of the probed attack.
        - "base": indices of the images that the unchanged attack fools ("fooled"), and their "distances".
        - for each probe, by name: its numbers, and "reason", which explains why it could not be run ("" if it was run).

    Raises:
        InvalidInput: if no image is classified correctly, or `images` < 1.
        DavylampError: if the unchanged attack fails.
    """
    if images < 1:
        raise InvalidInput(f"expected images >= 1, got {images}")
    few, right = inputs[: 8 * images], labels[: 8 * images].to(inputs.device)
    rows = (clean_logits(classifier, few, right).argmax(1) == right).nonzero()[:images, 0]
    if not len(rows):
        raise InvalidInput(f"the model classifies none of the first {len(few)} images correctly")
    return _CellProbe(_fixed(cell, inputs[0].numel()), classifier, few[rows], right[rows], rows.tolist()).run()


class _CellProbe:
    def __init__(self, cell: AttackRun, classifier: Classifier, inputs: Tensor, labels: Tensor, places: list[int]):
        self.cell, self.classifier, self.inputs, self.labels, self.places = cell, classifier, inputs, labels, places
        self.components = inputs[0].numel()

    def run(self) -> dict[str, Any]:
        base = self.attack(self.cell)
        self.queries = float((base.forwards + base.backwards).double().mean())
        self.base = self.outcome_of(base)
        self.radius = self.cell.threat_model.epsilon
        if self.radius is None and self.base["distances"]:
            self.radius = median(self.base["distances"])
        asked: Mapping[str, Callable[[], dict[str, Any]]] = {
            "more-steps": self.more_steps,
            "unbounded": self.unbounded,
            "random-noise": self.random_noise,
            "active-test": self.active_test,
        }
        epsilon = self.cell.threat_model.epsilon
        answers: dict[str, Any] = {"images": self.places, "epsilon": epsilon, "base": self.base}
        for name, ask in asked.items():
            try:
                answers[name] = {"reason": "", **ask()}
            except DavylampError as error:  # an unsupported probe does not prevent the others
                answers[name] = {"reason": " ".join(str(error).split())[:300]}
        return answers

    def more_steps(self) -> dict[str, Any]:
        row, settings = self.cell.row, dict(self.cell.parameters)
        steps = settings.get("steps") or library_defaults(row, self.cell.threat_model.norm).get("steps")
        if not accepts_parameter(row, "steps") or not isinstance(steps, int):
            raise Unsupported("the number of steps of the attack is unknown, so it cannot be increased")
        self.check_cost(TIMES)
        settings |= {name: TIMES * settings[name] for name in ("max_queries",) if name in settings} | {
            "steps": TIMES * steps
        }
        return {"times": TIMES, **self.outcome_of(self.attack(replace(self.cell, parameters=settings)))}

    def unbounded(self) -> dict[str, Any]:
        threat_model = self.cell.threat_model
        if threat_model.epsilon is None:
            return {"radius": None, "fooled": self.base["fooled"]}
        if is_single_step(self.cell):
            raise Unsupported("an attack with a single step is not expected to reach every image")
        self.check_cost(1)
        wide = largest_radius(threat_model, self.components)
        settings = dict(self.cell.parameters)
        if isinstance(settings.get("step_size"), float):
            settings["step_size"] *= wide / threat_model.epsilon
        cell = replace(self.cell, threat_model=replace(threat_model, epsilon=wide), parameters=settings)
        return {"radius": wide, **self.outcome_of(self.attack(cell))}

    def random_noise(self) -> dict[str, Any]:
        radius, fooled = self.need_radius(), []
        if self.cell.threat_model.targeted:
            raise Unsupported("random noise cannot be targeted")
        generator = torch.Generator().manual_seed(self.cell.seed)
        half = DRAWS // 2
        for place, image, label in zip(self.places, self.inputs, self.labels, strict=True):
            points = [
                random_points(image, self.cell.threat_model.norm, radius, half, generator, corners=corners)
                for corners in (False, True)
            ]
            changed = torch.cat(points)
            drawn = judge_outputs(self.classifier, changed, label.expand(len(changed)), None, self.cell.seed)
            if bool(is_fooled(drawn.logits, label.expand(len(changed))).any()):
                fooled.append(place)
        return {"radius": radius, "draws": 2 * half, "fooled": fooled}

    def active_test(self) -> dict[str, Any]:
        radius, places = self.need_radius(), {"planted": [], "found": [], "easy": [], "not separable": []}
        norm, targeted = self.cell.threat_model.norm, self.cell.threat_model.targeted
        settings = dict(self.cell.parameters)
        settings |= {"candidates": 2} if "candidates" in settings else {}
        label, target = (torch.tensor([place], device=self.inputs.device) for place in (0, 1))
        for place, image in zip(self.places, self.inputs, strict=True):
            planted = plant_adversarial_example(self.classifier, image, norm, radius, self.cell.seed + place)
            if not planted["separable"] or planted["easy"]:
                places["easy" if planted["separable"] else "not separable"].append(place)
                continue
            result = run_attack(
                self.cell.row,
                planted["classifier"],
                image[None],
                label,
                ThreatModel(norm, radius, targeted),
                targets=target if targeted else None,
                seed=self.cell.seed,
                first=place,
                **settings,
            )
            places["planted"].append(place)
            places["found"] += [place] if bool(result.success[0]) else []
        if not places["planted"]:
            lost = f"{len(places['not separable'])} are not separable, {len(places['easy'])} are found by random noise"
            raise Unsupported(f"no planted example is usable for the test: {lost}")
        return {"radius": radius, **places}

    def attack(self, cell: AttackRun) -> AttackResult:
        return attack_shard(cell, self.classifier, self.inputs, self.labels)

    def outcome_of(self, result: AttackResult) -> dict[str, Any]:
        hits = result.success.nonzero()[:, 0].tolist()
        distances = [float(result.distance[place]) for place in hits]
        return {"fooled": [self.places[place] for place in hits], "distances": distances}

    def need_radius(self) -> float:
        norm = self.cell.threat_model.norm
        radius = self.radius or default_epsilon(norm, self.components)
        if radius is None or norm == "unrestricted":
            raise Unsupported(f"a {norm} threat model has no radius")
        return radius

    def check_cost(self, times: int) -> None:
        if times * self.queries > MOST_QUERIES:
            raise Unsupported(
                f"the probe needs about {times * self.queries:.0f} passes per image, more than the limit of "
                f"{MOST_QUERIES}"
            )


def largest_radius(threat_model: ThreatModel, components: int) -> float:
    """Return the radius at which every image can be made uniformly grey; for l0, the number of components.

    Raises:
        Unsupported: for a norm without radii.
    """
    sizes = {"linf": 0.5, "l2": 0.5 * components**0.5, "l1": 0.5 * components, "l0": float(components)}
    if threat_model.norm not in sizes:
        raise Unsupported(f"a {threat_model.norm} threat model has no radius")
    return sizes[threat_model.norm]


def _fixed(cell: AttackRun, components: int) -> AttackRun:
    """Return the fixed-budget run inside a radius search, at the radius of the run or the customary radius.

    Other runs are returned unchanged.
    """
    if cell.search.is_portfolio or not cell.search.searches_radius:
        return cell
    epsilon = cell.threat_model.epsilon or default_epsilon(cell.threat_model.norm, components)
    threat_model = replace(cell.threat_model, epsilon=epsilon)
    settings = resolve_step_size(cell.parameters, threat_model.epsilon)
    return replace(cell, attack=cell.search.inside, threat_model=threat_model, parameters=settings, grid={}, asked=None)
