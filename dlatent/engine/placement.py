"""Which worker is the home of which group: neighbours together, and each group where its blocks are already cached."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from dlatent.order import FEWEST_STRIPS

ENOUGH_STRIPS = 4096
"""From so many meetings on a strip has several of them, also where a worker has few groups."""


def place(groups: int, workers: Mapping[str, int], before: Sequence[str | None]) -> list[str]:
    """Give every group a home among `workers` (address → threads), as many to each as its share of the threads.

    A group keeps the home it had `before` while that worker lives and has room; the others fill the workers from the
    first to the last, so that at the start each has one contiguous range. Results do not depend on homes.
    """
    room = _quotas(groups, workers)
    homes: list[str | None] = []
    for group in range(groups):
        home = before[group] if group < len(before) else None
        stays = home is not None and room.get(home, 0) > 0
        homes.append(home if stays else None)
        if stays and home is not None:
            room[home] -= 1
    free = [worker for worker in room for _ in range(room[worker])]
    vacancies = iter(free)
    return [home if home is not None else next(vacancies) for home in homes]


def meeting_places(homes: Sequence[str]) -> Callable[[int, int], str]:
    """Where two groups meet that meet once, by their numbers: at the home of one of them.

    A worker meets the groups of half of the workers, those that follow it in a ring, so that it reads little more than
    half of the data, and all have equally much to do.  Where the number of workers is even, two that face each other
    share the meetings of their groups.
    """
    number = {home: at for at, home in enumerate(dict.fromkeys(homes))}
    met: dict[str, int] = dict.fromkeys(number, 0)
    ranks = list[int]()
    for home in homes:
        ranks.append(met[home])
        met[home] += 1

    def place_of(group: int, other: int) -> str:
        if number[homes[group]] > number[homes[other]]:
            group, other = other, group
        steps = number[homes[other]] - number[homes[group]]
        if 2 * steps == len(number):
            return homes[group if ranks[other] % 2 else other]
        return homes[group if 2 * steps < len(number) else other]

    return place_of


class Strip(NamedTuple):
    """Meetings of one group after the other with all hosts, at their home; the guests may be at home there, too."""

    home: str
    guests: tuple[int, ...]
    hosts: tuple[int, ...]

    @property
    def meetings(self) -> int:
        """Their number."""
        return len(self.guests) * len(self.hosts)


def strips(
    homes: Sequence[str], threads: Mapping[str, int], guests: int | None = None, hosts: int | None = None
) -> list[Strip]:
    """All meetings of every two groups, which meet once, in the order in which they should begin: a worker has its own
    groups in memory, and reads one of the others at a time for all that it meets there.

    Parameters: `homes`, of each group; `threads` of each worker; `guests` and `hosts`, the most in a strip.
    """
    wholes, meeting = list(_wholes(homes, hosts or len(homes))), Counter[str]()
    for whole in wholes:
        meeting[whole.home] += whole.meetings
    enough, found = -(-meeting.total() // ENOUGH_STRIPS), list[Strip]()
    for home, visitors, own in wholes:
        most = -(-meeting[home] // (FEWEST_STRIPS * threads.get(home, 1)))
        width = min(most, hosts or most)
        for at in range(0, len(own), width):
            part = own[at : at + width]
            each = max(1, min(most, enough) // len(part))
            each = min(each, guests or each)
            found += [Strip(home, visitors[first : first + each], part) for first in range(0, len(visitors), each)]
    found.sort(key=lambda strip: -strip.meetings)  # at the end short ones leave threads without work for less long
    return found


def _wholes(homes: Sequence[str], widest: int) -> Iterator[Strip]:
    """All meetings, as few strips: of all groups of two workers at a time, and of those of one worker."""
    place_of, members = meeting_places(homes), defaultdict[str, list[int]](list)
    for group, home in enumerate(homes):
        members[home].append(group)
    for (home, own), (later, others) in combinations(members.items(), 2):
        guests = tuple(other for other in others if place_of(own[0], other) == home)
        hosts = tuple(other for other in others if other not in guests)
        if guests:
            yield Strip(home, guests, tuple(own))
        if hosts:
            yield Strip(later, tuple(own), hosts)
    for home, own in members.items():
        for at in range(0, len(own), widest):
            hosts, rest = tuple(own[at : at + widest]), tuple(own[at + widest :])
            yield from (Strip(home, (guest,), hosts[: number + 1]) for number, guest in enumerate(hosts))
            if rest:
                yield Strip(home, rest, hosts)


def _quotas(groups: int, workers: Mapping[str, int]) -> dict[str, int]:
    """Groups for each worker, by its threads; they add up to `groups`, and depend on the sorted addresses only."""
    threads = sum(workers.values())
    quotas, given, seen = {}, 0, 0
    for worker in sorted(workers):
        seen += workers[worker]
        upto = groups * seen // threads
        quotas[worker], given = upto - given, upto
    return quotas
