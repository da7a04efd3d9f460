from __future__ import annotations

from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from dlatent.engine.executor import place
from dlatent.order import FAN_IN, GROUP_BYTES, SMALL_GROUP_BYTES, branches, group_count, groups, reduce_tree, task_count

sizes = st.lists(st.integers(0, 10**9), min_size=1, max_size=80)


@given(sizes)
def test_groups_are_consecutive_and_hold_every_block_once(nbytes):
    cut = groups(nbytes)
    assert [index for group in cut for index in group] == list(range(len(nbytes)))
    assert all(len(group) for group in cut)
    assert len(cut) == group_count(nbytes)


@given(sizes)
def test_groups_are_balanced_to_one_block(nbytes):
    weights = [max(size, 1) for size in nbytes]
    fair = sum(weights) / group_count(nbytes)
    assert all(len(group) == 1 or sum(weights[i] for i in group) <= fair + max(weights) for group in groups(nbytes))


@given(st.integers(18, 2000), st.integers(1, 10**6))
def test_halves_and_quarters_of_the_groups_are_right_to_half_a_block(count, last):
    """A worker of two or four gets so many groups; the last block of a store is often a short one."""
    nbytes = [10**6] * (count - 1) + [last]
    cut = groups(nbytes)
    for parts in (2, 4):
        for part in range(1, parts):
            left = sum(nbytes[index] for group in cut[: len(cut) * part // parts] for index in group)
            assert abs(left - sum(nbytes) * part / parts) <= 500_000


def test_number_of_groups(monkeypatch):
    monkeypatch.setattr("dlatent.order.FEWEST_GROUPS", 4)
    assert group_count([1] * 3) == 3
    assert group_count([1] * 4096) == 4
    assert [group_count([SMALL_GROUP_BYTES] * count) for count in (5, 7, 8, 11, 15, 16)] == [4, 4, 8, 8, 12, 16]
    assert group_count([SMALL_GROUP_BYTES] * 64) == 16
    assert [group_count([GROUP_BYTES // 2] * 2 * count) for count in (16, 17, 20, 21)] == [16, 20, 20, 24]
    assert group_count([GROUP_BYTES // 2] * 100) == 52
    assert group_count([GROUP_BYTES] * 5000) == 1024


def test_groups_of_an_example():
    assert groups([10**7] * 20)[:5] == [range(1), range(1, 2), range(2, 4), range(4, 5), range(5, 6)]
    assert [len(group) for group in groups([10**9, *[10**7] * 19])] == [1, *[1] * 14, 5]


def written(nodes):
    return f"({' '.join(nodes)})"


def test_tree_of_six_groups_is_this_one():
    assert reduce_tree(str, written, 6) == "((0 1 2 3) (4 5))"


def test_a_lone_last_node_is_passed_up():
    assert reduce_tree(str, written, 5) == "((0 1 2 3) 4)"
    assert reduce_tree(str, lambda nodes: "never", 1) == "0"


def depth(leaves):
    """Levels of the tree."""
    return next(levels for levels in count(1) if FAN_IN ** (levels - 1) >= leaves)


@given(st.integers(1, 400), st.booleans())
def test_tree_keeps_the_order_and_few_nodes_alive(leaves, folded):
    """Of each level, and a new one: the sum so far where a join adds up what comes, up to four where it lists them."""
    alive, most = 0, 0

    def leaf(group):
        nonlocal alive, most
        alive += 1
        most = max(most, alive)
        return [group]

    def listed(nodes):
        nonlocal alive
        nodes = list(nodes)
        alive -= len(nodes) - 1
        return [group for node in nodes for group in node]

    def added(nodes):
        nonlocal alive
        total = next(nodes)
        for node in nodes:
            alive -= 1
            total += node
        return total

    assert reduce_tree(leaf, added if folded else listed, leaves) == list(range(leaves))
    assert most <= (depth(leaves) if folded else 20)


@given(st.integers(1, 60), st.dictionaries(st.text("abcdef", min_size=1), st.integers(1, 4), min_size=1, max_size=9))
def test_homes_are_shared_out_by_threads(count, workers):
    homes = place(count, workers, [])
    assert homes == sorted(homes)
    threads = sum(workers.values())
    for worker, own in workers.items():
        assert abs(homes.count(worker) - count * own / threads) < 1


def test_homes_stay_when_another_worker_is_replaced():
    before = place(16, {"a": 1, "b": 1, "c": 1, "d": 1}, [])
    after = place(16, {"a": 1, "bb": 1, "c": 1, "d": 1}, before)
    assert after == ["bb" if home == "b" else home for home in before]


@given(st.integers(1, 400))
def test_tasks_are_counted_as_the_tree_makes_them(leaves):
    made = []
    reduce_tree(made.append, lambda nodes: made.append(list(nodes)), leaves)
    assert task_count(leaves) == len(made)


def test_branches_of_two_workers():
    assert branches(range(8), 16) == [range(4), range(4, 8)]
    assert branches(range(16), 16) == [range(16)]
    assert branches(range(12, 24), 24) == [range(12, 16), range(16, 24)]
    assert branches([0, 1, 2, 4, 5], 6) == [range(1), range(1, 2), range(2, 3), range(4, 6)]
    assert branches([4], 5) == [range(4, 5)]


@given(st.integers(1, 300), st.integers(1, 5), st.randoms(use_true_random=False), st.booleans())
def test_branches_that_were_made_apart_meet_in_the_same_tree(leaves, workers, random, scattered):
    """Each is made by its groups alone, counted from 0, as a task does it."""
    homes = [random.randrange(workers) for _ in range(leaves)]
    if not scattered:
        homes.sort()
    made = {}
    for worker in range(workers):
        own = [group for group, home in enumerate(homes) if home == worker]
        found = branches(own, leaves)
        assert [group for node in found for group in node] == own
        assert scattered or len(found) <= 2 * (FAN_IN - 1) * depth(leaves)
        for node in found:
            made[node] = reduce_tree(lambda at, node=node: str(node[at]), written, len(node))
    assert reduce_tree(lambda group: f"missing {group}", written, leaves, made) == reduce_tree(str, written, leaves)
