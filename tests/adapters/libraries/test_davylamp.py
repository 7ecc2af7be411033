"""davylamp's attacks against their authors' programs and closed forms; the catalogue's contract tests run on them, too.

The tables hold what the programs returned on the linear model of the contract, run beside the project. Each says where
its program is from.
"""

import pytest
import torch

from davylamp.adapters import ThreatModel, run_attack
from davylamp.adapters.libraries.davylamp.rays import rays


class Counted:
    """A model that notes the queries of every image."""

    def __init__(self, case):
        self.module, self.queries = case.module, torch.zeros(len(case.inputs), dtype=torch.long)

    def query_rows(self, points, rows):
        self.queries.index_add_(0, rows, torch.ones_like(rows))
        return self.module(points)


def one_by_one(attack, case, **parameters):
    """The images of an attack that gets them one at a time."""
    each = zip(case.inputs, case.labels, strict=True)
    return torch.cat([attack(case.module, image[None], label[None], **parameters) for image, label in each])


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
        found = rays(linear.module, linear.inputs[image], linear.labels[image], targets=aim, max_queries=queries)
        assert linf(found - linear.inputs[image]).item() == pytest.approx(distance, abs=1e-6)


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

    for attack in (rays,):
        assert torch.equal(attack(constant, digits.inputs[:1], digits.labels[:1], max_queries=50), digits.inputs[:1])


def test_queries_are_counted_for_their_image_within_run_attack(digits):
    counted = Counted(digits)
    best = rays(counted, digits.inputs, digits.labels, max_queries=100)
    result = run_attack("davylamp:rays", digits.classifier, *digits[1:], ThreatModel("linf"), max_queries=100)
    assert torch.equal(result.forwards, counted.queries)
    assert result.backwards.sum() == 0
    assert torch.equal(result.adv_inputs, best)
