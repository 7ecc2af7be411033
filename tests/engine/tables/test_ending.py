"""The last lines of `davylamp evaluate`, on folders whose truth is known."""

from typing import NamedTuple

import numpy as np
import torch

from davylamp.commands.evaluation_summary import result_lines
from davylamp.engine.checks.standings import rank_attacks
from davylamp.engine.store.results import read_outcomes
from davylamp.intervals import clustered_interval, proportion_interval
from davylamp.report.parts.sentences import say_strongest_attacks
from davylamp.report.text.console import KEPT


class Ended(NamedTuple):
    """What `result_lines` looks at of a plan."""

    cells: list


def lines_of(writer, *cells):
    return result_lines(Ended([*cells]), writer.store)


def test_the_last_lines_count_what_the_records_have(writer):
    """20 images: 6 fooled by the first attack, 3 by the other; 5 results of a third prove nothing."""
    labels, clean = torch.zeros(20, dtype=torch.int64), torch.tensor([[5.0, 0]]).repeat(20, 1)
    subject, places = writer.clean("a", clean, labels), torch.arange(20)

    def attack(name, fooled, **spec):
        return writer.cell(subject, name, clean, torch.where(fooled[:, None], clean.flip(1), clean), labels, **spec)

    cells = [attack("foolbox:pgd", places < 6, seed=seed) for seed in (0, 1)]
    cells.append(attack("art:pgd", (places > 4) & (places < 8)))
    line, *_ = lines_of(writer, *cells)
    rate = clustered_interval(np.repeat((places < 6).double()[:, None].numpy(), 2, axis=1))
    assert line == (
        f"a, linf 0.1: clean accuracy 1.00{KEPT}[0.83,{KEPT}1.00]; "
        f"robust accuracy 0.60{KEPT}[0.36,{KEPT}0.81] on 20 images (worst case); "
        f"most fooled by foolbox:pgd: 0.30{KEPT}[{rate.low:.2f},{KEPT}{rate.high:.2f}] of 40 in 2 runs"
    )
    cells.append(attack("art:square", places < 0, violated=places > 14))
    line, *_ = lines_of(writer, *cells)
    assert "(worst case; 5 invalid results of art:square)" in line
    attack("art:square", places < 0, violated=places > 16, parameters={"max_queries": 5})
    assert "8 invalid results of art:square)" in lines_of(writer, *cells)[0]
    low, high = (
        proportion_interval(7, 20)[0],
        proportion_interval(12, 20)[1],
    )  # 15 to 19 of 20 by nothing: these may be robust
    assert f"robust accuracy 0.35{KEPT}[{low:.2f},{KEPT}{high:.2f}]" in line


def test_a_targeted_attack_is_told_by_its_target(writer):
    """All 20 images are wrong under attack, 8 of them as the target."""
    labels, clean = torch.zeros(20, dtype=torch.int64), torch.tensor([[5.0, 0, 0]]).repeat(20, 1)
    reached = torch.arange(20) < 8
    wrong = torch.where(reached[:, None], torch.tensor([0.0, 5, 0]), torch.tensor([0.0, 0, 5]))
    subject = writer.clean("a", clean, labels)
    spec = {"target": "second-likely", "success": reached, "TAS": reached.double()}
    cell = writer.cell(subject, "foolbox:pgd", clean, wrong, labels, **spec, MR=torch.ones(20, dtype=torch.double))
    line, *_ = lines_of(writer, cell)
    assert line == (
        f"a, linf 0.1, targeted: clean accuracy 1.00{KEPT}[0.83,{KEPT}1.00]; "
        f"correct and not classified as the target 0.60{KEPT}[0.36,{KEPT}0.81] on 20 images (worst "
        f"case); target reached most often by foolbox:pgd: 0.40{KEPT}[0.19,{KEPT}0.64] of 20"
    )


def test_the_page_names_the_same_strongest_attack_with_the_same_numbers(writer):
    labels, clean = torch.zeros(20, dtype=torch.int64), torch.tensor([[5.0, 0]]).repeat(20, 1)
    subject, places = writer.clean("a", clean, labels), torch.arange(20)[:, None]
    cells = [
        writer.cell(subject, name, clean, torch.where(places < count, clean.flip(1), clean), labels)
        for name, count in (("foolbox:pgd", 6), ("art:pgd", 11), ("torchattacks:fgsm", 2))
    ]
    (standing,) = rank_attacks(read_outcomes(writer.store.folder))
    first = standing.places[0]
    assert (first.attack, first.value, first.tries) == ("art:pgd", 11 / 20, 20)
    assert [said.lead for said in say_strongest_attacks([standing])] == ["art:pgd"]
    shown = f"most fooled by art:pgd: 0.55{KEPT}[{first.low:.2f},{KEPT}{first.high:.2f}] of 20"
    assert lines_of(writer, *cells)[0].endswith(shown)
