"""The laws of task graphs, without running a block function: order, completeness, size."""

from __future__ import annotations

import pickle
from collections import Counter
from itertools import combinations_with_replacement, product
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlatent.engine import edges, fold, pairs
from dlatent.engine.edges import survey_graph, traffic_of
from dlatent.engine.fold import Work
from dlatent.engine.remote import Message
from dlatent.engine.session import pass_graph
from dlatent.engine.task_graph import BUNDLE_BYTES, Layout, rows_graph
from dlatent.order import reduce_tree, task_count
from dlatent.passes import Edges, Pass, pair_pass, tile_pass
from tests.law_examples import examples

ALONE = Pass(max, None)


def nothing(*_values):
    """Stands for a function that is never called."""


MEETINGS = {
    "both orders": pair_pass(nothing, None),
    "mutual": pair_pass(nothing, None, mutual=True),
    "tiles": tile_pass(nothing, None),
}


def graph(hops):
    return Pass(nothing, None, exchange=Edges(nothing, nothing, hops))


@st.composite
def layouts(draw, most=40):
    groups = draw(st.integers(1, most))
    workers = [f"worker {number}" for number in range(draw(st.integers(1, 5)))]
    homes = draw(st.lists(st.sampled_from(workers), min_size=groups, max_size=groups))
    sizes = draw(st.lists(st.integers(1, BUNDLE_BYTES), min_size=groups, max_size=groups))
    threads = {worker: draw(st.integers(1, 3)) for worker in workers}
    return Layout(tuple(sizes), tuple(homes), threads, draw(st.booleans()), draw(st.booleans()))


def joined(texts):
    return f"({' '.join(texts)})"


def spelled(task_graph):
    """The result of a pass over blocks alone, as a text that shows what met what in which order."""
    made = []
    for task in task_graph.tasks:
        given = [made[ref.task] if ref.at is None else made[ref.task][ref.at] for ref in task.inputs]
        if task.call is fold.join:
            made.append(joined(given))
        elif task.call is fold.run_group:
            made.append(f"{task.groups[0]}")
        else:
            assert task.call is fold.fold_groups
            groups, nodes = list(task.groups), []
            for size in task.values[0]:
                own, groups = groups[:size], groups[size:]
                nodes.append(reduce_tree(lambda at, own=own: f"{own[at]}", joined, size))
            assert not groups
            made.append(tuple(nodes))
    ((last, at),) = task_graph.results
    return made[last] if at is None else made[last][at]


@given(layouts())
@settings(max_examples=examples(200))
def test_the_order_of_a_sum_depends_on_the_number_of_groups_alone(layout):
    assert spelled(pass_graph(ALONE, layout)) == reduce_tree(str, joined, len(layout.homes))


@given(layouts(most=12), st.integers(1, 3), st.randoms(use_true_random=False))
@settings(max_examples=examples(100))
def test_tasks_come_after_what_they_need_and_nothing_is_made_in_vain(layout, hops, random):
    needs = [sorted({random.randrange(len(layout.homes)) for _ in range(3)}) for _ in range(len(layout.homes))]
    for pass_ in (ALONE, graph(hops), *MEETINGS.values()):
        task_graph = pass_graph(pass_, layout, needs)
        used = Counter(ref.task for ref in task_graph.results)
        for number, task in enumerate(task_graph.tasks):
            assert all(ref.task < number for ref in task.inputs)
            assert task.home in (*layout.homes, "")
            used.update(ref.task for ref in task.inputs)
        assert set(used) == set(range(len(task_graph.tasks)))
        if task_graph.joins:
            assert [task_graph.tasks[number].call for number in task_graph.joins] == [fold.join] * len(task_graph.joins)
            assert task_graph.results[0].task == task_graph.joins[-1]


@given(layouts())
def test_bundles_are_the_groups_of_one_worker_and_not_too_many_bytes(layout):
    bundled = Layout(layout.nbytes, layout.homes, layout.threads, bundled=True)
    folds = [task for task in pass_graph(ALONE, bundled).tasks if task.groups]
    assert sorted(group for task in folds for group in task.groups) == list(range(len(layout.homes)))
    for task in folds:
        assert {layout.homes[group] for group in task.groups} == {task.home}
        assert len(task.groups) == 1 or sum(layout.nbytes[group] for group in task.groups) <= BUNDLE_BYTES
    for home in set(layout.homes):
        own = layout.homes.count(home)
        each = -(-own // layout.threads[home])
        assert sum(task.home == home for task in folds) >= -(-own // each)


@given(layouts(most=16), st.integers(1, 3), st.randoms(use_true_random=False))
@settings(max_examples=examples(100))
def test_rows_reach_every_group_that_has_edges_to_them(layout, hops, random):
    needs = [sorted({random.randrange(len(layout.homes)) for _ in range(4)}) for _ in range(len(layout.homes))]
    task_graph = pass_graph(graph(hops), layout, needs)
    rows = list[object]()  # of each task, the groups that its rows are of
    met = dict[int, int]()
    for task in task_graph.tasks:
        given_rows = [rows[ref.task] for ref in task.inputs]
        if task.call is edges.pack:
            assert given_rows == [{group} for group in task.values[0]]
            rows.append({group for own in given_rows for group in own})
            continue
        own = set(task.groups) if task.groups else set().union(*given_rows)
        if task.call in (edges.spread, edges.fold_met):
            (group,) = task.groups
            packed = [
                part
                for ref, part in zip(task.inputs, given_rows, strict=True)
                if task_graph.tasks[ref.task].call is edges.pack
            ]
            arrived = [one for parcel in packed for one in parcel]
            assert set(needs[group]) <= set(arrived)
            assert len(arrived) == len(set(arrived)), "no rows come twice"
            met[group] = met.get(group, 0) + 1
        rows.append(own)
    assert met == dict.fromkeys(range(len(layout.homes)), hops)


def needs_of(kind, groups):
    """The groups that each has edges to: all, those beside it, or a random half."""
    if kind == "all":
        return [range(groups)] * groups
    if kind == "near":
        return [range(max(group - 1, 0), min(group + 2, groups)) for group in range(groups)]
    return [np.flatnonzero(row) for row in np.random.default_rng(0).random((groups, groups)) < 0.5]


@pytest.mark.parametrize("kind", ["all", "near", "half"])
@pytest.mark.parametrize("workers", [1, 2, 16, 64, 256, 1000])
def test_the_graph_of_a_graph_pass_is_linear_in_the_groups(workers, kind):
    """With any number of workers, whose number squared would be a million tasks; rows go to who needs them alone."""
    groups, hops = 1024, 2
    homes = tuple(f"worker {group * workers // groups}" for group in range(groups))
    layout, needs = Layout((1,) * groups, homes, dict.fromkeys(homes, 1)), needs_of(kind, groups)
    task_graph = pass_graph(graph(hops), layout, needs)
    survey = np.zeros((groups, groups), dtype=np.int64)
    for row, near in zip(survey, needs, strict=True):
        row[near] = 1
    moved = traffic_of(survey, [1] * groups, homes)
    assert len(task_graph.tasks) == task_count(groups) + hops * moved.tasks <= 6 * groups
    assert sum(len(task.inputs) for task in task_graph.tasks) < 6 * groups + hops * (survey.sum() + groups)
    if kind == "all":
        assert moved.tasks == groups + workers
        assert sum(len(task.inputs) for task in task_graph.tasks) < 6 * groups * (1 + workers)
    bundles = [task.call is edges.pack for task in task_graph.tasks]
    arrived = {(ref, task.home) for task in task_graph.tasks for ref in task.inputs if bundles[ref.task]}
    sent = [(task_graph.tasks[ref.task], home) for ref, home in arrived]
    assert sum(len(task.inputs) for task, home in sent if task.home != home) == hops * moved.rows


@given(layouts(most=20), st.integers(1, 20))
@settings(max_examples=examples(100))
def test_groups_meet_as_often_as_they_should(layout, stretches):
    every = list(product(range(len(layout.homes)), repeat=2))
    once = list(combinations_with_replacement(range(len(layout.homes)), 2))
    with patch("dlatent.order.MOST_STRETCHES", stretches), patch("dlatent.engine.pairs.ENOUGH_STRIPS", 30):
        graphs = [pass_graph(pass_, layout) for pass_ in MEETINGS.values()]
    for task_graph, call, expected in zip(
        graphs, (pairs.meet, pairs.meet_once, pairs.tiles), (every, once, once), strict=True
    ):
        found = list[tuple[int, int]]()
        for task in task_graph.tasks:
            if task.call is call:
                one, other = (list(groups) for groups in task.groups)
                met = list(product(one, other))
                if call is pairs.meet_once and one == other:
                    met = list(combinations_with_replacement(one, 2))
                assert task.steps == len(met)
                found += met if call is pairs.meet else map(tuple, map(sorted, met))
        assert sorted(found) == expected
        assert task_graph.steps == len(expected)


@pytest.mark.slow
@pytest.mark.parametrize("kind", MEETINGS)
@pytest.mark.parametrize("workers", [2, 16, 64])
@pytest.mark.parametrize("heavy", [False, True], ids=["from a store", "held"])
def test_the_graph_of_all_pairs_of_groups_is_small(kind, workers, heavy):
    """Of 1,024 groups, half a million or a million pairs: some thousand tasks, and few inputs of each."""
    groups = 1024
    homes = tuple(f"tcp://10.0.0.{group * workers // groups}:40001" for group in range(groups))
    layout = Layout((1,) * groups, homes, dict.fromkeys(homes, 4), heavy=heavy)
    work = Work(MEETINGS[kind], first=True, groups=groups)
    task_graph = pass_graph(work.pass_, layout)
    message, each = Message(work, task_graph), 1 if heavy else groups
    bundles = [f"groups-{one}" for one in range(groups)]
    for number, task in enumerate(task_graph.tasks):
        message.add(number, [bundles[one] for one in dict.fromkeys(group // each for group in task.needed)])
    layers = message.dask_graph.built().layers.values()
    inputs = sum(
        len(some) for layer in layers for _, *lists in layer.values() for some in lists if isinstance(some, list)
    )
    assert len(message.dask_graph) < 18 * groups
    assert inputs < (300 if heavy else 45) * groups
    assert len(pickle.dumps(message.dask_graph.built())) < 4_000_000
    at = Counter(dict.fromkeys(homes, 0))
    for task in task_graph.tasks:
        at[task.home] += task.steps
    assert max(at.values()) <= 1.02 * task_graph.steps / workers, "all workers have as much to do"


@given(layouts())
def test_rows_and_surveys_have_a_result_for_each_group(layout):
    for task_graph in (rows_graph(layout), survey_graph(layout)):
        assert [task_graph.tasks[ref.task].groups for ref in task_graph.results] == [
            (g,) for g in range(len(layout.homes))
        ]
        assert not task_graph.joins
