"""Tensors as columns of a record: the same bytes as from Python's own lists, and back without loss."""

import pyarrow as pa
import pytest
import torch

from davylamp.engine.store.checksummed import seal_table
from davylamp.engine.store.columns import EXAMPLES, column_of_logits, column_of_maps, logits_of

MAPS = torch.randn(10, 7, 5, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("first", [0, 4, 20])
def test_maps_are_nested_lists_and_null_where_an_image_is_no_example(first):
    places = range(first, first + 10)
    lists = [each.tolist() if place < EXAMPLES else None for each, place in zip(MAPS, places, strict=True)]
    column = column_of_maps(MAPS, places)
    column.validate(full=True)
    assert column.to_pylist() == lists
    slow = pa.table({"cam": pa.array(lists, pa.list_(pa.list_(pa.float32())))})
    assert seal_table(pa.table({"cam": column})) == seal_table(slow)


def test_maps_of_the_stored_images_suffice():
    assert column_of_maps(MAPS[:EXAMPLES], range(10)) == column_of_maps(MAPS, range(10))


def test_logits_come_back_also_from_a_part():
    logits = torch.randn(10, 3)
    table = pa.table({"logits": column_of_logits(logits)})
    assert torch.equal(logits_of(table, "logits"), logits)
    assert torch.equal(logits_of(table.slice(4, 5), "logits"), logits[4:9])
