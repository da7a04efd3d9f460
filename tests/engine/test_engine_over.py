"""One session over two data sets: what a pass over the second gives, and what is left of it."""

from __future__ import annotations

import numpy as np
import pytest
from engine_cases import drawn, gram, parameters, same

from dlatent.engine.cache import CACHE
from dlatent.engine.connect import connect
from dlatent.errors import EngineError
from dlatent.passes import Pass

FIRST, SECOND = [3, 1, 40, 7, *[5] * 20], [2, 90, 8, *[4] * 25]


@pytest.fixture(params=["serial", None, "two_processes"])
def client(request):
    return request.getfixturevalue(request.param) if request.param == "two_processes" else request.param


def alone(source):
    with connect(source, client="serial") as session:
        return session.run(Pass(gram, parameters()))


def test_a_second_data_set_gives_the_bits_of_a_session_of_its_own(client):
    first, second = drawn(FIRST, key="first"), drawn(SECOND, key="second")
    expected = [alone(source) for source in (first, second)]
    with connect(first, client=client) as session, session.over(second) as other:
        found = [session, other, session, other]
        assert all(same(one.run(Pass(gram, parameters())), expected[n % 2]) for n, one in enumerate(found))


def test_passes_are_records_of_the_session(client):
    told = []
    first, second = drawn(FIRST, key="first"), drawn(SECOND, key="second")
    with connect(first, client=client, on_pass=told.append) as session:
        session.run(Pass(gram, parameters(), name="first"))
        with session.over(second) as other:
            other.run(Pass(gram, parameters(), name="second"))
        session.run(Pass(gram, parameters(), name="third"))
    assert [record.name for record in session.passes] == ["first", "second", "third"]
    assert told == session.passes
    assert [record.blocks for record in session.passes] == [len(FIRST), len(SECOND), len(FIRST)]


def test_both_keep_what_the_first_was_told_to_keep(client):
    first, second = drawn(FIRST, key="first"), drawn(SECOND, key="second")
    with connect(first, client=client) as session:
        session.keep(0)
        with session.over(second) as other:
            assert other.resources == session.resources
            for _ in range(2):
                other.run(Pass(gram, parameters()))
    assert [record.cached for record in session.passes] == [0, 0]


def test_the_end_of_the_second_leaves_the_first(client):
    first, second = drawn(FIRST, key="first"), drawn(SECOND, key="second")
    with connect(first, client=client) as session:
        session.run(Pass(gram, parameters()))
        with session.over(second) as other:
            other.run(Pass(gram, parameters()))
        assert CACHE.get(second.key, 0) is None
        with pytest.raises(EngineError, match="closed"):
            other.run(Pass(gram, parameters()))
        session.run(Pass(gram, parameters()))
        assert session.passes[-1].bytes_read == 0
    with pytest.raises(EngineError, match="closed"), session.over(second):
        pass


def test_targets_stay_with_their_rows(client):
    first, second = drawn(FIRST), drawn(SECOND, key="second")
    labelled = Pass(lambda block, _: int(block.targets is not None), None)
    with connect(first, targets=np.ones((sum(FIRST), 2)), client=client) as session, session.over(second) as other:
        assert session.run(labelled) == len(FIRST)
        assert other.run(labelled) == 0
