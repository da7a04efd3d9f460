"""Freed memory is kept for the next block, and given back at the end of a fit."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from dlatent.engine import machine

WORKER = {"MALLOC_TRIM_THRESHOLD_": "65536", "NUMPY_MADVISE_HUGEPAGE": "0"}
"""What distributed sets for its workers; and every page counts."""
RECOMMENDED = WORKER | {k: v for k, v in machine.worker_environment().items() if k not in machine.HUGE_PAGES}


def _run(program: str, **environment: str) -> list[int]:
    """The numbers that a process prints."""
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    return [int(word) for word in done.stdout.split()]


FAULTS = """
import resource
import numpy as np
from dlatent.engine.machine import keep_freed

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        np.ones(31 * 2**17)  # 31 mebibytes, made and freed
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

before = faults()
keep_freed()
faults()
print(before, faults())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="page faults are counted on Linux, with glibc")
def test_a_worker_with_the_recommended_environment_keeps_whole_blocks() -> None:
    before, kept = _run(FAULTS, **RECOMMENDED)
    assert kept < before / 10


@pytest.mark.skipif(sys.platform != "linux", reason="page faults are counted on Linux, with glibc")
def test_a_worker_of_distributed_keeps_small_arrays() -> None:
    before, kept = _run(FAULTS.replace("31 * 2**17", "2**17").replace("range(5)", "range(100)"), **WORKER)
    assert kept < before / 10
    before, kept = _run(FAULTS, **WORKER)
    assert kept > before / 2, "whole blocks only where the environment says so"


@pytest.mark.skipif(sys.platform != "linux", reason="page faults are counted on Linux, with glibc")
def test_a_process_of_one_s_own_keeps_whole_blocks_from_the_first_on() -> None:
    """glibc would know of them when the first is freed."""
    first = FAULTS.replace("before = faults()\n", "").replace("faults()\nprint(before, ", "print(")
    (fresh,) = _run(first, NUMPY_MADVISE_HUGEPAGE="0", MALLOC_MMAP_THRESHOLD_="65536")
    (kept,) = _run(first, NUMPY_MADVISE_HUGEPAGE="0")
    assert kept < fresh / 3


RESIDENT = """
import numpy as np
from dlatent.engine.machine import give_back, keep_freed

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1])

before = resident()
keep_freed()
arrays = [np.ones(2**20) for _ in range(9)]  # 72 MiB, of which eight lie below one that stays
last = arrays.pop()
del arrays
inside = resident()
give_back()
print(before, inside, resident())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="pages are counted on Linux, with glibc")
def test_the_end_of_a_fit_gives_back_what_lies_below_what_stays() -> None:
    before, inside, after = _run(RESIDENT, **RECOMMENDED)
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
    small, huge = (_run(BYTES, **worker, **more)[0] for more in ({}, machine.HUGE_PAGES))
    assert huge < small / 5, "all but the two ends of each 16 MiB"


@pytest.mark.skipif(sys.platform != "linux", reason="page faults are counted on Linux, with glibc")
@pytest.mark.parametrize(
    "given",
    [
        {"MALLOC_MMAP_THRESHOLD_": "65536"},
        {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "a lot"},
        {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.trim_threshold=65536"},
    ],
)
def test_nothing_is_set_where_the_environment_has_other_thresholds(given: dict[str, str]) -> None:
    before, kept = _run(FAULTS, NUMPY_MADVISE_HUGEPAGE="0", **given)
    assert kept > before / 2
