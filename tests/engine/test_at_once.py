"""`map_at_once` is `map`, whatever threads do; products keep to one thread; a step `beside` ends with its caller."""

import threading
import time

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from davylamp.engine import at_once
from davylamp.engine.at_once import beside, map_at_once


@pytest.fixture(params=[1, 2, 5])
def cores(request, monkeypatch):
    monkeypatch.setattr(at_once, "_usable_cores", lambda: request.param)
    return request.param


def test_results_come_in_the_order_of_the_items_though_later_ones_end_first(cores):
    def wait(item):
        time.sleep(0.002 * (7 - item % 7))
        return item * item

    assert [*map_at_once(wait, range(40))] == [item * item for item in range(40)]


def test_nothing_of_nothing(cores):
    assert [*map_at_once(str, [])] == []


def test_steps_run_at_the_same_time_where_there_are_cores(monkeypatch):
    monkeypatch.setattr(at_once, "_usable_cores", lambda: 2)
    both = threading.Barrier(2, timeout=20)
    assert [*map_at_once(lambda item: both.wait() >= 0 and item, range(6))] == [*range(6)]


def test_few_steps_are_ahead_of_the_caller(cores):
    begun = []
    results = map_at_once(lambda item: begun.append(item) or item, range(1000))
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

    results, taken = map_at_once(fail, range(1000)), []
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

    assert [*map_at_once(str, items())] == [*map(str, range(20))]
    assert takers == {threading.get_ident()}


def test_products_take_one_thread_until_the_last_map_ends(cores):
    assert np.ones((2, 2)).sum() == 4
    before = _threads_of_products()
    outer = map_at_once(lambda _: _threads_of_products(), range(3))
    assert next(outer) == {1}
    assert [*map_at_once(lambda _: _threads_of_products(), range(2))] == [{1}, {1}]
    assert _threads_of_products() == {1}  # the outer one goes on
    assert [*outer] == [{1}, {1}]
    assert _threads_of_products() == before


def _threads_of_products():
    return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}


def test_a_step_goes_on_beside_its_caller_one_after_the_other():
    met, order = threading.Barrier(2, timeout=20), []
    with beside() as begin:
        first = begin(lambda: order.append("first") or met.wait() >= 0)
        second = begin(lambda: order.append("second") or [*map_at_once(str, range(3))])
        met.wait()
        assert first.result() is True
        assert second.result() == ["0", "1", "2"]
    assert order == ["first", "second"]


def test_an_error_of_a_step_comes_with_its_result():
    def fail():
        raise ValueError("beside")

    with beside() as begin:
        step = begin(fail)
        with pytest.raises(ValueError, match="beside"):
            step.result()


def test_what_goes_on_beside_ends_with_its_caller(cores):
    begun, done, waiting = threading.Event(), [], []

    def step():
        for item in map_at_once(lambda item: time.sleep(0.01) or item, range(3000)):  # half a minute of five cores
            done.append(item)
            begun.set()

    def interrupted():
        with beside() as begin:
            begin(step)
            waiting.append(begin(lambda: done.append("after")))
            assert begun.wait(20)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert waiting[0].cancelled()
    assert "after" not in done
    assert len(done) < 3000
