"""What a cell of the server counts: the same images as the tables of its folder."""

import pyarrow as pa
import pytest

from davylamp.engine.store.checksummed import Record
from davylamp.server.tasks.ingest import _counts

# Fooled; robust; wrong when clean; failed by the library; by the model; by nobody knows whom.
ATTACKED = [True, True, False, True, True, True]
VIOLATIONS = ["", "", "", "out-of-ball", "nan-logits", "model-crashed"]


def record(success: list[bool], **more: list[float]) -> Record:
    columns = {"attacked": ATTACKED, "success": success, "violated": [bool(text) for text in VIOLATIONS]}
    return Record(pa.table({**columns, "violations": VIOLATIONS, **more}), {"status": "done"})


def test_an_image_that_the_library_failed_on_was_not_fooled_and_an_undecided_one_does_not_count():
    counts = _counts(record([True, False, False, False, False, False]))
    assert counts == {"attacked": 3, "fooled": 1}


def test_what_an_invalid_image_came_to_is_no_success():
    assert _counts(record([True, False, False, True, True, True]))["fooled"] == 1


def test_of_a_random_model_the_shares_of_draws_count():
    counts = _counts(record([True, False, False, True, False, True], draws_fooled=[0.75, 0.25, 0.0, 1.0, 0.5, 1.0]))
    assert counts["fooled"] == pytest.approx(1.0)
    assert counts["attacked"] == 3
