"""The section on corruptions: there only where they were measured, with curves, pictures and tables."""

import re

import pytest
import torch
from torch import nn

from davylamp.adapters.data.datasets import Data
from davylamp.adapters.models.classifier import Classifier
from davylamp.engine import ResultsStore
from davylamp.engine.run.corruptions import CorruptionPlan, measure_corruptions
from davylamp.report.page.build import build_report
from davylamp.report.sections.corruptions import write_corruptions


@pytest.fixture(scope="module")
def corrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corrupted")
    images = Data(
        torch.rand(6, 3, 70, 70, generator=torch.Generator().manual_seed(0)), torch.arange(6) % 4, list("abcdef")
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        nets = [nn.Sequential(nn.AvgPool2d(10), nn.Flatten(), nn.Linear(147, 4)) for _ in range(2)]
    models = {f"<b>net {place}</b>": Classifier(net) for place, net in enumerate(nets)}
    plan = CorruptionPlan("mine", ("fog", "contrast"), (1, 4), ("brightness",), images=images)
    measure_corruptions(models, plan, ResultsStore(folder))
    return folder


def test_a_folder_of_corruptions_alone_has_a_page(corrupted):
    page = build_report(corrupted, bootstrap=50)
    assert re.findall(r'<section id="([^"]*)"', page) == ["corruptions", "glossary"]
    assert page.count("data:image/jpeg") == 2 * 3  # two corruptions: clean and two severities
    assert "<b>net" not in page
    assert all(text in page for text in ("Mean error at each severity", "Fog: error rate", "severity 4", "mCE"))


def test_a_folder_without_has_no_section(folder):
    assert write_corruptions(folder) is None


def test_curves_begin_with_the_clean_images(corrupted):
    section = write_corruptions(corrupted, bootstrap=0)
    kinds = [block.kind for block in section.blocks]
    assert kinds[:4] == ["table", "figure", "fold", "table"]
    assert "pictures" in kinds
    (panels,) = section.blocks[2].blocks
    assert len(panels.figures) == 2
