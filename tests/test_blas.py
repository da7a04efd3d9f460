from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from dlatent.blas import pinned


def blas_threads():
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def two_threads():
    with threadpool_limits(2, user_api="blas"):
        if blas_threads() != {2}:
            pytest.skip("this BLAS does not let its threads be set to 2")
        yield


def test_one_thread_inside_and_as_before_outside():
    with pinned():
        assert blas_threads() == {1}
        with pinned():
            assert blas_threads() == {1}
        assert blas_threads() == {1}
    assert blas_threads() == {2}


def test_an_exception_restores_the_threads():
    with pytest.raises(KeyError), pinned():
        raise KeyError
    assert blas_threads() == {2}


def test_it_holds_when_another_thread_set_a_limit_before():
    with threadpool_limits(2, user_api="blas"), ThreadPoolExecutor(1) as pool:

        def enter():
            with pinned():
                return blas_threads()

        assert pool.submit(enter).result() == {1}
        assert blas_threads() == {2}


def test_the_last_of_many_threads_restores():
    barrier = Barrier(6)

    def enter(_):
        with pinned():
            barrier.wait()
            seen = blas_threads()
            barrier.wait()
        return seen

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(enter, range(6))) == [{1}] * 6
    assert blas_threads() == {2}
