"""`thread_map` is `map`: the same results in the same order, whatever the threads do; products keep to one thread."""

import threading
import time

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from davylamp.engine import thread_map as threads
from davylamp.engine.thread_map import thread_map


@pytest.fixture(params=[1, 2, 5])
def cores(request, monkeypatch):
    monkeypatch.setattr(threads, "_usable_cores", lambda: request.param)
    return request.param


def test_results_come_in_the_order_of_the_items_though_later_ones_end_first(cores):
    def wait(item):
        time.sleep(0.002 * (7 - item % 7))
        return item * item

    assert [*thread_map(wait, range(40))] == [item * item for item in range(40)]


def test_nothing_of_nothing(cores):
    assert [*thread_map(str, [])] == []


def test_steps_run_at_the_same_time_where_there_are_cores(monkeypatch):
    monkeypatch.setattr(threads, "_usable_cores", lambda: 2)
    both = threading.Barrier(2, timeout=20)
    assert [*thread_map(lambda item: both.wait() >= 0 and item, range(6))] == [*range(6)]


def test_few_steps_are_ahead_of_the_caller(cores):
    begun = []
    results = thread_map(lambda item: begun.append(item) or item, range(1000))
    assert next(results) == 0
    time.sleep(0.05)
    assert len(begun) <= 3 * cores + 2


def test_an_error_comes_at_its_place_and_ends_it(cores):
    begun = []

    def fail(item):
        begun.append(item)
        if item == 3:
            raise ValueError("three")
        return item

    results, taken = thread_map(fail, range(1000)), []
    with pytest.raises(ValueError, match="three"):
        taken.extend(results)
    assert taken == [0, 1, 2]
    assert len(begun) <= 3 * cores + 5


def test_the_items_are_taken_by_the_caller_alone(cores):
    takers = set()

    def items():
        for item in range(20):
            takers.add(threading.get_ident())
            yield item

    assert [*thread_map(str, items())] == [*map(str, range(20))]
    assert takers == {threading.get_ident()}


def test_products_take_one_thread_until_the_last_map_ends(cores):
    assert np.ones((2, 2)).sum() == 4
    before = _threads_of_products()
    outer = thread_map(lambda _: _threads_of_products(), range(3))
    assert next(outer) == {1}
    assert [*thread_map(lambda _: _threads_of_products(), range(2))] == [{1}, {1}]
    assert _threads_of_products() == {1}  # the outer one goes on
    assert [*outer] == [{1}, {1}]
    assert _threads_of_products() == before


def _threads_of_products():
    return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}
