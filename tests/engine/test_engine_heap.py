"""Freed memory is kept for the next block while a pass runs, and only then."""

import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dlatent.engine import heap

FAULTS = """
import resource, sys
import numpy as np
from dlatent.engine.heap import kept

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
print(outside, inside, faults())
"""


def _run(program: str, **environment: str) -> list[int]:
    """The numbers that a process prints: page faults, before, in and after `kept` for the first program."""
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    return [int(word) for word in done.stdout.split()]


@pytest.mark.skipif(sys.platform != "linux", reason="page faults are counted on Linux, with glibc")
def test_arrays_get_the_pages_of_earlier_ones_while_a_pass_runs_on_a_worker_of_distributed() -> None:
    outside, inside, after = _run(FAULTS, MALLOC_TRIM_THRESHOLD_="65536")
    assert inside < outside / 10
    assert after > outside / 2


LARGER = FAULTS.replace("2**17", "31 * 2**17").replace("a mebibyte", "31 mebibytes").replace("range(100)", "range(5)")


@pytest.mark.skipif(sys.platform != "linux", reason="page faults are counted on Linux, with glibc")
def test_a_worker_with_the_recommended_environment_keeps_whole_blocks() -> None:
    worker = {"MALLOC_TRIM_THRESHOLD_": "65536", "NUMPY_MADVISE_HUGEPAGE": "0"}  # every page counts
    recommended = {k: v for k, v in heap.worker_environment().items() if k not in heap.HUGE_PAGES}
    fresh = _run(LARGER, **worker)[1]
    outside, inside, after = _run(LARGER, **worker, **recommended)
    assert inside < fresh / 10
    assert min(outside, after) > fresh / 2, "outside of passes all goes back"


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
    small, huge = (_run(BYTES, **worker, **more)[0] for more in ({}, heap.HUGE_PAGES))
    assert huge < small / 5, "all but the two ends of each 16 MiB"


class _Recorder:
    """Stands for mallopt."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []

    def __call__(self, parameter: int, value: int) -> int:
        self.calls.append((parameter, value))
        return 1


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = _Recorder()
    monkeypatch.setattr(heap, "_settings", lambda: (made, 65536, 131072))
    return made


def test_the_thresholds_are_restored_by_the_last_to_leave(recorder: _Recorder) -> None:
    with heap.kept():
        entered = list(recorder.calls)
        with pytest.raises(KeyError), heap.kept():
            raise KeyError
        assert recorder.calls == entered
    assert dict(entered) == {heap.TRIM_THRESHOLD: 2 * heap.KEPT, heap.MMAP_THRESHOLD: heap.KEPT}
    assert dict(recorder.calls[len(entered) :]) == {heap.TRIM_THRESHOLD: 65536, heap.MMAP_THRESHOLD: 131072}


def test_the_environment_may_allow_for_more(monkeypatch: pytest.MonkeyPatch, recorder: _Recorder) -> None:
    monkeypatch.setattr(heap, "_settings", lambda: (recorder, 65536, heap.MOST_KEPT))
    with heap.kept():
        inside = dict(recorder.calls)
    assert inside == {heap.TRIM_THRESHOLD: 2 * heap.MOST_KEPT, heap.MMAP_THRESHOLD: heap.MOST_KEPT}
    assert dict(recorder.calls) == {heap.TRIM_THRESHOLD: 65536, heap.MMAP_THRESHOLD: heap.MOST_KEPT}


@pytest.mark.parametrize("given", ["", "a lot"])
def test_nothing_is_set_where_the_environment_sets_nothing(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", given)
    heap._settings.cache_clear()
    try:
        assert heap._settings() is None
        with heap.kept():
            pass
    finally:
        heap._settings.cache_clear()
