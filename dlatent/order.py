"""The fixed order of every sum: which blocks form a group, and how the groups meet in a tree.

Law: both depend only on the number and the sizes of the blocks, never on workers, threads, caches or time.
Floating-point addition does not associate, so this is what makes results equal to the last bit on every engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import TypeVar

T = TypeVar("T")

FEWEST_GROUPS = 4
ENOUGH_GROUPS = 16
MOST_GROUPS = 1024
SMALL_GROUP_BYTES = 4_000_000
GROUP_BYTES = 128_000_000
FAN_IN = 4
FEWEST_STRIPS = 4
"""Strips for each thread, where there are enough meetings: long ones at the end leave threads without work."""
MOST_STRETCHES = 128
"""Their pairs are some thousand tasks: a few milliseconds each, and enough for some hundred threads."""


def group_count(sizes: Sequence[int]) -> int:
    """Number of groups for blocks of these sizes: of about 4 MB up to 16 of them, then of at most about 128 MB.

    At least 4 and at most 1024: every group costs a task and the transfer of a statistic, too much for small data.
    They are whole nodes of the tree, 4, 8, 12 and so on: one group more would be one more join, and work for one more
    round of two or four workers.
    """
    total = sum(sizes)
    small = min(ENOUGH_GROUPS, total // SMALL_GROUP_BYTES // FAN_IN * FAN_IN)
    large = -(-total // GROUP_BYTES)
    if large > ENOUGH_GROUPS:
        large = min(MOST_GROUPS, large + -large % FAN_IN)
    return min(len(sizes), max(FEWEST_GROUPS, small, large))


def groups(sizes: Sequence[int]) -> list[range]:
    """Cut the blocks into consecutive, non-empty groups of about equal bytes.

    Boundary g is where the bytes to the left are nearest to g/G of all (of two, the left), so that a half or quarter of
    the groups, the share of one of few workers, is right to half a block; it is moved where a group would be empty.
    Integers only, so that every machine cuts at the same place. Cost O(blocks + groups).
    """
    count = group_count(sizes)
    weights = [max(int(size), 1) for size in sizes]
    left_of = [0, *accumulate(weights)]
    cuts, position = [0], 0
    for group in range(1, count):
        while left_of[position] * count < left_of[-1] * group:
            position += 1
        too_many = (left_of[position - 1] + left_of[position]) * count >= 2 * left_of[-1] * group
        cuts.append(min(max(position - too_many, cuts[-1] + 1), len(sizes) - (count - group)))
    cuts.append(len(sizes))
    return [range(start, stop) for start, stop in pairwise(cuts)]


def stretches(count: int) -> list[range]:
    """Consecutive groups that meet others as one in a mutual pass over pairs: single ones up to 128 of them."""
    width = -(-count // MOST_STRETCHES)
    return [range(start, min(start + width, count)) for start in range(0, count, width)]


def task_count(leaves: int) -> int:
    """Tasks that fold and join so many groups: one for each group, and one for each node that joins several."""
    return reduce_tree(lambda _: 1, lambda tasks: 1 + sum(tasks), leaves)


def reduce_tree(
    leaf: Callable[[int], T],
    join: Callable[[Iterable[T]], T],
    leaves: int,
    known: Mapping[range, T] | None = None,
) -> T:
    """Walk the tree depth first: `leaf(group)` makes a leaf, `join` folds the children of a node from left to right.

    `join` must take all that it is given: children are made while it asks for them, so that one which adds them up has
    two at a time, and one which lists them first at most four on each level. A node with one child is that child.

    Parameters: `known`, nodes that are there already, by the groups below them.
    """

    def visit(start: int, width: int) -> T:
        below = range(start, min(start + width, leaves))
        if known and below in known:
            return known[below]
        if width == 1:
            return leaf(start)
        width //= FAN_IN
        children = below[::width]
        return visit(start, width) if len(children) == 1 else join(visit(child, width) for child in children)

    width = 1
    while width < leaves:
        width *= FAN_IN
    return visit(0, width)


def branches(members: Sequence[int], leaves: int) -> list[range]:
    """The largest nodes of the tree that have no other groups below them than those of `members`, in order; each is
    given by those groups, whose own tree has its shape.

    Parameters: `members`, groups in ascending order; `leaves`, the number of all groups.
    """
    nodes, at = list[range](), 0
    while at < len(members):
        first, width = members[at], 1
        node = wider = range(first, first + 1)
        while list(wider) == list(members[at : at + len(wider)]):
            node, width = wider, width * FAN_IN
            if first % width or len(node) == leaves:
                break
            wider = range(first, min(first + width, leaves))
        nodes.append(node)
        at += len(node)
    return nodes
