"""davylamp's attacks against their authors' programs and closed forms; the catalogue's contract tests run on them, too.

The tables hold what the programs returned on the linear model of the contract, run beside the project. Each says where
its program is from.
"""

import itertools
from functools import partial

import pytest
import torch
from scipy.fft import dctn, idctn
from scipy.optimize import minimize
from torch.nn.functional import cross_entropy, normalize, smooth_l1_loss

from davylamp.adapters import ThreatModel, run_attack
from davylamp.adapters.libraries.davylamp.bp import bp, round_across
from davylamp.adapters.libraries.davylamp.features import Features
from davylamp.adapters.libraries.davylamp.lbfgs import lbfgs, minimise
from davylamp.adapters.libraries.davylamp.losses import round_to_grid
from davylamp.adapters.libraries.davylamp.lsa import lsa
from davylamp.adapters.libraries.davylamp.nattack import nattack
from davylamp.adapters.libraries.davylamp.qeba import qeba
from davylamp.adapters.libraries.davylamp.rays import rays
from davylamp.adapters.libraries.davylamp.ssah import ssah
from davylamp.adapters.libraries.davylamp.surfree import surfree


class Counted:
    """A model that notes the queries of every image."""

    def __init__(self, case):
        self.module, self.queries = case.module, torch.zeros(len(case.inputs), dtype=torch.long)

    def __call__(self, points):
        return self.query_rows(points, torch.arange(len(points)))

    def query_rows(self, points, rows):
        self.queries.index_add_(0, rows, torch.ones_like(rows))
        return self.module(points)


def one_by_one(attack, case, **parameters):
    """The images of an attack that gets them one at a time."""
    each = zip(case.inputs, case.labels, strict=True)
    return torch.cat([attack(case.module, image[None], label[None], **parameters) for image, label in each])


def l2(change):
    return change.flatten(1).norm(dim=1)


def others(case):
    """For each image one of another class."""
    return case.inputs[torch.stack([(case.labels != label).nonzero()[0, 0] for label in case.labels])]


def is_on_the_grid(images):
    return torch.allclose(images * 255, (images * 255).round(), atol=1e-4)


def linf(change):
    return change.flatten(1).abs().amax(1)


# github.com/uclaml/RayS, RayS.py: targeted -> queries and linf distance of each image. It ends a binary search that a
# budget of 300 queries interrupts, so that each image used a few more.
RAYS = {
    False: ((300, 302, 303, 302), (0.0005329, 0.0002645, 0.0010697, 0.0009508)),
    True: ((305, 301, 303, 305), (0.0051539, 0.000276, 0.0011477, 0.0016919)),
}


@pytest.mark.parametrize("targeted", [False, True])
def test_rays_is_at_the_distance_of_its_authors_program_after_as_many_queries(linear, targeted):
    targets = (linear.labels + 1) % 4 if targeted else None
    for i, (queries, distance) in enumerate(zip(*RAYS[targeted], strict=True)):
        image = slice(i, i + 1)
        aim = None if targets is None else targets[image]
        result = rays(linear.module, linear.inputs[image], linear.labels[image], targets=aim, max_queries=queries)
        assert linf(result - linear.inputs[image]).item() == pytest.approx(distance, abs=1e-6)


def test_rays_asks_for_an_image_in_a_batch_what_it_asks_for_it_alone(digits):
    together = Counted(digits)
    batch = rays(together, digits.inputs, digits.labels, max_queries=150)
    assert together.queries.tolist() == [150] * len(digits.inputs)
    torch.testing.assert_close(batch, one_by_one(rays, digits, max_queries=150), rtol=0, atol=1e-6)


def test_rays_stops_where_every_further_query_would_be_a_repetition(linear):
    counted = Counted(linear)
    best = rays(counted, linear.inputs, linear.labels, max_queries=10_000)
    assert counted.queries.max() < 3000
    assert torch.equal(best, one_by_one(rays, linear, max_queries=20_000))


def test_an_attack_by_decisions_returns_the_image_where_nothing_fools(digits):
    def constant(points):
        return torch.eye(10)[digits.labels[:1]].expand(len(points), -1)

    for attack in (rays, partial(surfree, starting_points=digits.inputs[1:2]), surfree):
        assert torch.equal(attack(constant, digits.inputs[:1], digits.labels[:1], max_queries=50), digits.inputs[:1])


def test_queries_are_counted_for_their_image_within_run_attack(digits):
    counted = Counted(digits)
    best = rays(counted, digits.inputs, digits.labels, max_queries=100)
    case = (digits.classifier, digits.inputs, digits.labels, ThreatModel("linf"))
    result = run_attack("davylamp:rays", *case, max_queries=100)
    assert torch.equal(result.forwards, counted.queries)
    assert result.backwards.sum() == 0
    assert torch.equal(result.adv_inputs, best)


def test_si_fgsm_without_momentum_is_si_ni_fgsm_without_it(digits):
    given = {"steps": 4, "step_size": 0.02, "decay": 0.0, "scales": 3}
    case = (digits.classifier, digits.inputs, digits.labels, ThreatModel("linf", 0.06))
    ours, theirs = (run_attack(name, *case, **given) for name in ("davylamp:si-fgsm", "torchattacks:si-ni-fgsm"))
    assert (ours.adv_inputs - theirs.adv_inputs).abs().lt(1e-6).float().mean() > 0.999
    assert torch.equal(ours.forwards, torch.full_like(ours.forwards, 12))
    assert torch.equal(ours.backwards, ours.forwards)


def test_si_fgsm_of_one_copy_is_mi_fgsm(digits):
    given = {"steps": 4, "step_size": 0.02, "decay": 0.8}
    case = (digits.classifier, digits.inputs, digits.labels, ThreatModel("linf", 0.06))
    ours = run_attack("davylamp:si-fgsm", *case, scales=1, **given)
    theirs = run_attack("torchattacks:mi-fgsm", *case, **given)
    assert (ours.adv_inputs - theirs.adv_inputs).abs().lt(1e-6).float().mean() > 0.999


def test_bp_crosses_the_boundary_of_a_linear_model_in_a_third_of_its_steps(linear):
    fooled = []

    def model(points):
        logits = linear.module(points)
        fooled.append((logits.argmax(1) != linear.labels).all().item())
        return logits

    bp(model, linear.inputs, linear.labels, steps=30, quantise=False)
    assert len(fooled) == 30
    assert fooled.index(True) in (9, 10, 11)


def test_bp_is_as_near_as_ddn_and_on_the_grid(digits):
    case = (digits.classifier, digits.inputs, digits.labels, ThreatModel("l2"))
    ddn = run_attack("foolbox:ddn", *case, steps=50).distance.median()
    for quantise in (True, False):
        result = run_attack("davylamp:bp", *case, steps=50, quantise=quantise)
        assert result.success.all()
        assert result.distance.median() < 1.1 * ddn
        assert (result.forwards == 50).all()
        assert (result.backwards == 49).all()
        assert is_on_the_grid(result.adv_inputs) == quantise


def test_rounding_across_the_boundary_is_the_nearest_of_all_roundings():
    """Against all 2^9 roundings; changes below one grey level of a linear model."""
    torch.manual_seed(0)
    for target in (None, torch.tensor([1])):
        slope, clean = torch.randn(9), torch.randint(3, 250, (9,)) / 255
        slope[0] = 0.0
        point = clean - (0.05 + 0.9 * torch.rand(9)) / 255 * slope.sign()
        point[0] = clean[0] + 0.7 / 255
        edge = 0.3 * slope @ clean + 0.7 * slope @ point

        def model(points, slope=slope, edge=edge):
            score = points.flatten(1) @ slope - edge
            return torch.stack((score, -score), 1)

        def as_image(values):
            return values.reshape(1, 1, 3, 3)

        given = (model, as_image(clean), torch.tensor([0]), as_image(point), target)
        rounded = round_across(*given).flatten()
        below, above = (255 * point).floor(), (255 * point).ceil()
        every = [above.where(torch.tensor(up), below) / 255 for up in itertools.product((True, False), repeat=9)]
        fooling = [each for each in every if model(as_image(each)).argmax() == 1]
        assert 0 < len(fooling) < len(every)
        assert model(as_image(rounded)).argmax() == 1
        nearest = min(float((each - clean).norm()) for each in fooling)
        assert float((rounded - clean).norm()) == pytest.approx(nearest)
        assert rounded[0] == clean[0]
        hopeless = round_across(lambda points: torch.eye(2)[:1] + 0 * points.sum(), *given[1:])
        assert torch.equal(hopeless.flatten(), clean)


def test_bp_rounded_afterwards_is_nearer_than_rounded_inside_its_iterations(digits):
    inputs = round_to_grid(digits.inputs)
    case = (digits.classifier, inputs, digits.labels, ThreatModel("l2"))
    inside = run_attack("davylamp:bp", *case, steps=50, quantise=True)
    after = run_attack("davylamp:bp", *case, steps=50, quantise_after=True)
    assert after.success.all()
    assert is_on_the_grid(after.adv_inputs)
    assert after.distance.median() <= 1.01 * inside.distance.median()


def weighed(case, targets, const, rows):
    """The objective of L-BFGS: of points (m, d) of images `rows`, their values, gradients and who is adversarial."""

    def objective(points, among):
        each = rows[among]
        points = points.detach().float().requires_grad_()
        logits = case.module(points.view(-1, *case.inputs.shape[1:]))
        loss = cross_entropy(logits, targets[each], reduction="none")
        value = (points - case.inputs.flatten(1)[each]).square().sum(1) + const * loss
        return value.detach(), torch.autograd.grad(value.sum(), points)[0], logits.argmax(1) != case.labels[each]

    return objective


@pytest.mark.parametrize("const", [0.1, 10.0])
def test_lbfgs_minimises_as_scipy_does(digits, const):
    rows, targets = torch.arange(3), (digits.labels + 1) % 10
    start = digits.inputs.flatten(1)[rows]
    objective, lowest = weighed(digits, targets, const, rows), torch.full((3,), torch.inf)

    def noting(points, among):
        values, gradients, fooled = objective(points, among)
        lowest[among] = torch.minimum(lowest[among], values)
        assert points.min() >= 0
        assert points.max() <= 1
        return values, gradients, fooled

    minimise(noting, start, 150)
    for image in range(3):

        def alone(point, image=image):
            value, gradient, _ = objective(torch.from_numpy(point)[None], torch.tensor([image]))
            return value.item(), gradient[0].double().numpy()

        bounds = [(0, 1)] * start.shape[1]
        scipy = minimize(alone, start[image].double().numpy(), jac=True, method="L-BFGS-B", bounds=bounds)
        assert lowest[image].item() <= 1.05 * scipy.fun  # there are several minima


def test_lbfgs_is_as_near_as_ddn(digits):
    targets = (digits.labels + 1) % 10
    case = (digits.classifier, digits.inputs, digits.labels, ThreatModel("l2", targeted=True))
    ddn = run_attack("foolbox:ddn", *case, targets=targets, steps=50)
    result = run_attack("davylamp:lbfgs", *case, targets=targets, binary_search_steps=6)
    assert result.success.all()
    assert result.distance.median() < 1.01 * ddn.distance.median()


def test_lbfgs_asks_nothing_about_an_image_that_no_longer_moves(digits):
    counted = Counted(digits)
    lbfgs(counted, digits.inputs, digits.labels, steps=100, binary_search_steps=1, initial_const=0.01)
    assert (counted.queries < 90).all()
    assert len(set(counted.queries.tolist())) > 1


def test_surfree_comes_near_the_least_perturbation_of_low_frequencies(linear):
    weights = linear.module[1].weight.view(4, 3, 8, 8)
    spectrum = torch.from_numpy(dctn(weights.numpy(), axes=(2, 3), norm="ortho"))
    place = torch.arange(8)[:, None] + torch.arange(8)
    low = torch.from_numpy(idctn((spectrum * (place <= 7)).numpy(), axes=(2, 3), norm="ortho")).flatten(1)
    gaps = linear.module(linear.inputs).gather(1, linear.labels[:, None]) - linear.module(linear.inputs)
    sizes = (low[linear.labels][:, None] - low).norm(dim=2)
    least = (gaps / sizes.clamp(min=1e-12)).masked_fill(gaps == 0, torch.inf).amin(1)
    generator = torch.Generator().manual_seed(0)
    best = surfree(linear.module, linear.inputs, linear.labels, max_queries=600, generator=generator)
    assert (l2(best - linear.inputs) < 1.5 * least).all()
    assert (l2(best - linear.inputs) > linear.least["l2"]).all()


@pytest.mark.parametrize("quantise", [False, True])
def test_surfree_spends_its_budget_on_adversarial_images_that_come_nearer(digits, quantise):
    few, distances = digits.first(6), []
    for queries in (30, 150):
        counted, generator = Counted(few), torch.Generator().manual_seed(0)
        given = {"starting_points": others(few), "quantise": quantise, "generator": generator}
        best = surfree(counted, few.inputs, few.labels, max_queries=queries, **given)
        assert counted.queries.tolist() == [queries] * 6
        assert (few.module(best).argmax(1) != few.labels).all()
        assert not quantise or is_on_the_grid(best)
        distances.append(l2(best - few.inputs))
    assert (distances[1] < distances[0]).all()
    assert (distances[1] / distances[0]).mean() < 0.85


def test_a_step_of_nattack_is_the_formula(digits):
    image, label, count = digits.inputs[:1], digits.labels[:1], 6
    best = nattack(
        digits.module, image, label, epsilon=0.2, steps=1, samples=count, generator=torch.Generator().manual_seed(3)
    )
    noise = torch.randn(count, 1, 3, 16, 16, generator=torch.Generator().manual_seed(3))[:, 0]
    centre = torch.atanh(2 * image - 1)

    def image_of(shift):
        return ((torch.tanh(centre + shift) + 1) / 2).clamp(image - 0.2, image + 0.2).clamp(0, 1)

    chances = digits.module(image_of(0.1 * noise)).log_softmax(1)
    right = chances[:, label.item()]
    wrong = torch.cat([chances[:, : label.item()], chances[:, label.item() + 1 :]], 1).amax(1)
    reward = -(right - wrong).clamp(min=0)
    weight = (reward - reward.mean()) / reward.std(correction=0)
    mean = 0.02 / (count * 0.1) * (weight[:, None, None, None] * noise).sum(0)
    torch.testing.assert_close(best, image_of(mean), rtol=0, atol=1e-4)


def test_nattack_asks_nothing_about_an_image_that_is_done(digits):
    counted, generator = Counted(digits), torch.Generator().manual_seed(0)
    given = {"epsilon": 0.25, "steps": 8, "samples": 20, "generator": generator}
    best = nattack(counted, digits.inputs, digits.labels, **given)
    fooled = digits.module(best).argmax(1) != digits.labels
    early = counted.queries < 8 * 21
    assert early.any()
    assert fooled[early].all()
    assert ((counted.queries[early] - 1) % 21 == 0).all()
    assert (counted.queries[~early] == 8 * 21).all()
    assert (linf(best - digits.inputs) <= 0.25 + 1e-6).all()


def local_search(module, image, label, steps, generator):
    """LocSearchAdv on one image, pixel by pixel."""
    image, side = image.clone() - 0.5, image.shape[2]
    near, queries = set(range(side * side)), 0
    for step in range(steps):
        keys = torch.rand(1, side * side, generator=generator)[0].tolist()
        allowed = sorted(near, key=lambda pixel: -keys[pixel])[: 128 if step else side * side // 10]
        scores = []
        for pixel in allowed:
            tried = image.clone()
            tried[0, :, pixel // side, pixel % side] = 0.25 * tried[0, :, pixel // side, pixel % side].sign()
            scores.append(module(tried + 0.5).softmax(1)[0, label].item())
        queries += len(allowed) + 1
        picked = [pixel for _, pixel in sorted(zip(scores, allowed, strict=True), key=lambda pair: pair[0])[:5]]
        for pixel in picked:
            for channel in range(3):
                value = 1.5 * image[0, channel, pixel // side, pixel % side].item()
                value += (value < -0.5) - (value > 0.5)
                image[0, channel, pixel // side, pixel % side] = value
        if module(image + 0.5).argmax(1).item() != label:
            return image + 0.5, queries
        near = {
            pixel
            for pixel in range(side * side)
            for one in picked
            if abs(pixel // side - one // side) <= 5 and abs(pixel % side - one % side) <= 5
        }
    return None, queries


@pytest.mark.parametrize("place", [0, 3, 7])
def test_lsa_is_the_search_of_its_paper_pixel_by_pixel(digits, place):
    case = digits.module, digits.inputs[place : place + 1], digits.labels[place : place + 1]
    expected, queries = local_search(case[0], case[1], int(case[2]), 3, torch.Generator().manual_seed(place))
    counted = Counted(digits.first(1))
    best = lsa(counted, case[1], case[2], steps=3, generator=torch.Generator().manual_seed(place))
    assert counted.queries.item() == queries
    torch.testing.assert_close(best, case[1] if expected is None else expected, rtol=0, atol=1e-5)


def test_lsa_fools_by_few_pixels(digits):
    best = lsa(digits.module, digits.inputs, digits.labels, steps=20, generator=torch.Generator().manual_seed(0))
    assert (digits.module(best).argmax(1) != digits.labels).all()
    assert ((best - digits.inputs).abs() > 1e-6).any(1).flatten(1).sum(1).median() < 40
    assert best.min() >= 0
    assert best.max() <= 1


def low_band(images):
    """Haar's low band and back, by its matrix: rows of 1 / sqrt(2), 1 / sqrt(2)."""
    haar = torch.kron(torch.eye(images.shape[2] // 2), torch.ones(1, 2)) / 2**0.5
    return haar.T @ (haar @ images @ haar.T) @ haar


def features_of(module, images):
    """What the last layer of the digits' CNN is given."""
    return module[:-1](images)


def test_steps_of_ssah_are_the_formula(digits):
    case, margin = digits.first(5), 0.2
    best = ssah(case.module, case.inputs, case.labels, steps=3, learning_rate=0.02, low_frequency=0.3, margin=margin)
    variable = torch.atanh(2 * case.inputs - 1).requires_grad_()
    optimiser, clean = torch.optim.Adam([variable], lr=0.02), normalize(features_of(case.module, case.inputs), dim=1)
    least = (clean @ clean.T).argmin(1)
    for _ in range(3):
        images = (torch.tanh(variable) + 1) / 2
        similarity = normalize(features_of(case.module, images), dim=1) @ clean.T
        near, other = similarity.diagonal(), similarity[torch.arange(5), least]
        weighted = (near.detach() - margin).clamp(min=0) * near - (1 + margin - other.detach()).clamp(min=0) * other
        bands = smooth_l1_loss(low_band(images), low_band(case.inputs), reduction="sum")
        optimiser.zero_grad()
        (weighted.clamp(min=0).sum() + 0.3 * bands).backward()
        optimiser.step()
    torch.testing.assert_close(best, ((torch.tanh(variable) + 1) / 2).detach(), rtol=0, atol=2e-3)
    assert (best - case.inputs).abs().max() > 0.01


def test_ssah_keeps_low_frequencies_the_more_they_weigh(digits):
    changes = []
    for weight in (0.0, 30.0):
        given = {"steps": 40, "learning_rate": 0.02, "low_frequency": weight}
        best = ssah(digits.module, digits.inputs, digits.labels, **given)
        changes.append((l2(low_band(best - digits.inputs)) / l2(best - digits.inputs)).median())
        assert weight or (digits.module(best).argmax(1) != digits.labels).float().mean() > 0.5
    assert changes[1] < 0.5 * changes[0]


def test_the_images_of_a_batch_are_the_negatives_of_ssah(digits):
    """negatives-of-the-batch."""
    given = {"steps": 5, "learning_rate": 0.02}
    together, alone = ssah(digits.module, digits.inputs, digits.labels, **given), one_by_one(ssah, digits, **given)
    assert (linf(together - alone) > 1e-3).all()


def test_features_are_what_the_last_layer_is_given(digits):
    rows = torch.arange(16)

    def asked(module):
        with Features(module) as features:
            return features.of(digits.inputs, rows)[0]

    assert torch.equal(asked(digits.module), features_of(digits.module, digits.inputs))
    convolutional = torch.nn.Sequential(*digits.module[:4], torch.nn.Flatten())
    assert torch.allclose(asked(convolutional), digits.module[:2](digits.inputs).mean((2, 3)), atol=1e-6)
    plain = torch.nn.Flatten()
    assert torch.equal(asked(plain), digits.inputs.flatten(1))
    assert not any(layer._forward_pre_hooks for layer in digits.module)


def test_ssah_keeps_budgets_that_differ(digits):
    case = (digits.classifier, digits.inputs, digits.labels, ThreatModel("unrestricted"))
    given = {"steps": 8, "learning_rate": 0.02}
    free = run_attack("davylamp:ssah", *case, **given)
    assert (free.forwards == 9).all()
    assert (free.backwards == 8).all()
    spent = torch.arange(16) % 4
    bound = run_attack("davylamp:ssah", *case, max_queries=12, spent=spent, **given)
    assert (bound.forwards + bound.backwards + spent <= 12).all()
    assert (bound.forwards + bound.backwards).min() >= 8


def test_qeba_comes_near_the_least_perturbation(linear):
    generator = torch.Generator().manual_seed(1)
    given = {"max_queries": 1500, "generator": generator, "basis": "px"}
    best = qeba(linear.module, linear.inputs, linear.labels, **given)
    assert (l2(best - linear.inputs) < 1.5 * linear.least["l2"]).all()
    assert (l2(best - linear.inputs) > (1 - 1e-4) * linear.least["l2"]).all()


@pytest.mark.parametrize(("basis", "side"), [("resize", 4), ("dct", 4), ("px", 16)])
def test_directions_of_qeba_span_their_subspace(digits, basis, side):
    from davylamp.adapters.libraries.davylamp.qeba import Subspace

    drawn = Subspace(digits.inputs, basis, 4, torch.Generator().manual_seed(0)).draw(2 * 3 * side**2).flatten(1)
    torch.testing.assert_close(drawn.norm(dim=1), torch.ones(len(drawn)))
    values = torch.linalg.svdvals(drawn)
    assert (values > 1e-4 * values[0]).sum() == 3 * side**2
    if basis == "dct":
        spectrum = torch.from_numpy(dctn(drawn.view(-1, 3, 16, 16).numpy(), axes=(2, 3), norm="ortho"))
        assert spectrum[:, :, 4:].abs().max() < 1e-5
        assert spectrum[:, :, :, 4:].abs().max() < 1e-5


@pytest.mark.parametrize("basis", ["resize", "dct"])
def test_qeba_comes_nearer_within_its_budget(digits, basis):
    distances = []
    for queries in (150, 600):
        counted, generator = Counted(digits), torch.Generator().manual_seed(0)
        given = {"starting_points": others(digits), "basis": basis, "generator": generator}
        best = qeba(counted, digits.inputs, digits.labels, max_queries=queries, **given)
        assert (digits.module(best).argmax(1) != digits.labels).all()
        assert counted.queries.max() <= queries
        assert counted.queries.min() >= queries - 30
        distances.append(l2(best - digits.inputs))
    assert (distances[1] <= distances[0]).all()
    assert (distances[1] / distances[0]).mean() < 0.8


def test_qeba_with_any_basis_starts_where_noise_fools(digits):
    best = qeba(digits.module, digits.inputs, digits.labels, max_queries=40, generator=torch.Generator().manual_seed(0))
    fooled = digits.module(best).argmax(1) != digits.labels
    assert torch.equal(best[~fooled], digits.inputs[~fooled])
    assert fooled.any()
