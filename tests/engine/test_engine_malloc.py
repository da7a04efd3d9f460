"""Freed memory is kept for the next block and the next task of a fit, and given back at its end."""

import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dlatent.engine import malloc

FAULTS = """
import resource, sys
import numpy as np
from dlatent.engine.malloc import given_back, kept

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(100):
        np.ones(2**17)  # a mebibyte, made and freed
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults()
outside = faults()
with kept():
    faults()
    inside = faults()
between = faults()
given_back()
print(outside, inside, between, faults())
"""


def _run(program: str, **environment: str) -> list[int]:
    """The numbers that a process prints: page faults before, in and after `kept`, and after `given_back`."""
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    return [int(word) for word in done.stdout.split()]


@pytest.mark.skipif(sys.platform != "linux", reason="page faults are counted on Linux, with glibc")
def test_arrays_get_the_pages_of_earlier_ones_while_a_pass_runs_on_a_worker_of_distributed() -> None:
    outside, inside, between, after = _run(FAULTS, MALLOC_TRIM_THRESHOLD_="65536")
    assert max(inside, between) < outside / 10
    assert after > outside / 2


@pytest.mark.skipif(sys.platform != "linux", reason="page faults are counted on Linux, with glibc")
def test_a_task_of_nobody_s_fit_gives_back_what_it_kept() -> None:
    brief = FAULTS.replace("with kept():", "with kept(briefly=True):")
    outside, inside, between, _ = _run(brief, MALLOC_TRIM_THRESHOLD_="65536")
    assert inside < outside / 10
    assert between > outside / 2


LARGER = FAULTS.replace("2**17", "31 * 2**17").replace("a mebibyte", "31 mebibytes").replace("range(100)", "range(5)")


@pytest.mark.skipif(sys.platform != "linux", reason="page faults are counted on Linux, with glibc")
def test_a_worker_with_the_recommended_environment_keeps_whole_blocks() -> None:
    worker = {"MALLOC_TRIM_THRESHOLD_": "65536", "NUMPY_MADVISE_HUGEPAGE": "0"}  # every page counts
    recommended = {k: v for k, v in malloc.worker_environment().items() if k not in malloc.HUGE_PAGES}
    fresh = _run(LARGER, **worker)[1]
    outside, inside, between, after = _run(LARGER, **worker, **recommended)
    assert max(inside, between) < fresh / 10
    assert min(outside, after) > fresh / 2, "outside of fits all goes back"


RESIDENT = """
import numpy as np
from dlatent.engine.malloc import given_back, kept

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1])

before = resident()
with kept():
    arrays = [np.ones(2**20) for _ in range(9)]  # 72 MiB, of which eight lie below one that stays
    last = arrays.pop()
    del arrays
    inside = resident()
given_back()
print(before, inside, resident())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="pages are counted on Linux, with glibc")
def test_the_end_of_a_fit_gives_back_what_lies_below_what_stays() -> None:
    recommended = {k: v for k, v in malloc.worker_environment().items() if k not in malloc.HUGE_PAGES}
    before, inside, after = _run(RESIDENT, MALLOC_TRIM_THRESHOLD_="65536", NUMPY_MADVISE_HUGEPAGE="0", **recommended)
    assert inside - before > 60 * 256
    assert after - before < 10 * 256, "of 256 pages to a mebibyte"


BYTES = """
import resource, sys
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    bytearray(2**24)[::4096] = b"1" * 2**12  # 16 MiB, of which every page is written to
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def _gives_huge_pages() -> bool:
    library, version = platform.libc_ver()
    new = library == "glibc" and tuple(map(int, version.split("."))) >= (2, 35)
    return new and PAGES.exists() and "[madvise]" in PAGES.read_text()


@pytest.mark.skipif(not _gives_huge_pages(), reason="needs glibc 2.35, and huge pages for those who ask for them")
def test_bytes_of_a_decoder_get_huge_pages() -> None:
    worker = {"MALLOC_TRIM_THRESHOLD_": "65536"}
    small, huge = (_run(BYTES, **worker, **more)[0] for more in ({}, malloc.HUGE_PAGES))
    assert huge < small / 5, "all but the two ends of each 16 MiB"


class _Recorder:
    """Stands for mallopt, and counts the calls of malloc_trim."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []
        self.trims = 0

    def trim(self, pad: int) -> int:
        self.trims += 1
        return pad

    def __call__(self, parameter: int, value: int) -> int:
        self.calls.append((parameter, value))
        return 1


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = _Recorder()
    monkeypatch.setattr(malloc, "_settings", lambda: malloc._Settings(made, made.trim, 65536, 131072))
    monkeypatch.setattr(malloc, "_between", False)
    return made


INSIDE = {malloc.TRIM_THRESHOLD: 2 * malloc.KEPT, malloc.MMAP_THRESHOLD: malloc.KEPT}
OUTSIDE = {malloc.TRIM_THRESHOLD: 65536, malloc.MMAP_THRESHOLD: 131072}


@pytest.mark.parametrize("briefly", [True, False])
def test_the_thresholds_are_restored_by_the_last_to_leave_or_at_the_end(briefly: bool, recorder: _Recorder) -> None:
    with malloc.kept(briefly=briefly):
        with pytest.raises(KeyError), malloc.kept(briefly=True):
            raise KeyError
        assert len(recorder.calls) == 2
    assert dict(recorder.calls) == (OUTSIDE if briefly else INSIDE)
    malloc.given_back()
    assert dict(recorder.calls) == OUTSIDE
    assert recorder.trims == 1


def test_the_end_of_one_fit_leaves_a_task_of_another_what_it_has(recorder: _Recorder) -> None:
    with malloc.kept():
        malloc.given_back()
        assert dict(recorder.calls) == INSIDE
    assert dict(recorder.calls) == OUTSIDE, "until the next task, as nobody is left who would end it"
    with malloc.kept():
        pass
    assert dict(recorder.calls) == INSIDE


def test_the_environment_may_allow_for_more(monkeypatch: pytest.MonkeyPatch, recorder: _Recorder) -> None:
    settings = malloc._Settings(recorder, recorder.trim, 65536, malloc.MOST_KEPT)
    monkeypatch.setattr(malloc, "_settings", lambda: settings)
    with malloc.kept(briefly=True):
        inside = dict(recorder.calls)
    assert inside == {malloc.TRIM_THRESHOLD: 2 * malloc.MOST_KEPT, malloc.MMAP_THRESHOLD: malloc.MOST_KEPT}
    assert dict(recorder.calls) == {malloc.TRIM_THRESHOLD: 65536, malloc.MMAP_THRESHOLD: malloc.MOST_KEPT}


@pytest.mark.skipif(sys.platform != "linux", reason="page faults are counted on Linux, with glibc")
def test_a_process_of_one_s_own_keeps_whole_blocks_from_the_first_on() -> None:
    """Where glibc adjusts itself it would know of them when the first is freed; afterwards all is as it would be."""
    first = LARGER.replace("faults()\noutside = faults()\n", "outside = 0\n").replace("    faults()\n", "", 1)
    fresh = _run(first, NUMPY_MADVISE_HUGEPAGE="0", MALLOC_MMAP_THRESHOLD_="65536")[1]
    _, inside, between, after = _run(first, NUMPY_MADVISE_HUGEPAGE="0")
    assert inside < fresh / 3, "the first of five"
    assert between < fresh / 10
    assert after < fresh / 3, "the first again, as the end of a fit gives back what is free"


@pytest.mark.parametrize(
    "given",
    [
        {"MALLOC_MMAP_THRESHOLD_": "65536"},
        {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "a lot"},
        {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.trim_threshold=65536"},
    ],
)
def test_nothing_is_set_where_the_environment_has_other_thresholds(
    given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    malloc._settings.cache_clear()
    try:
        assert malloc._settings() is None
        with malloc.kept():
            pass
        malloc.given_back()
        assert not malloc._between
    finally:
        malloc._settings.cache_clear()
