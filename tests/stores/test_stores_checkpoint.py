"""Laws of checkpoints on the disk and in object stores."""

from __future__ import annotations

import json
import os
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest

from dlatent import verify
from dlatent.errors import StoreError
from dlatent.stores.checkpoint import Checkpoint, discard, read_header, recorded

ABOUT = {"model": "PPCA", "data": {"shape": [3, 4]}}


@pytest.fixture(params=["disk", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "c") if request.param == "disk" else f"memory://{uuid4().hex}/c"


def begun(place: str, *, resume: bool = False, entries: int = 0) -> Checkpoint:
    made = Checkpoint(place, ABOUT, {"solver": "krylov"}, resume=resume)
    for number in range(entries):
        made.record(("pass", number), np.full(3, number))
    return made


def test_results_come_back_in_their_order_and_for_their_own_work_only(place: str) -> None:
    begun(place, entries=4).close()
    again = Checkpoint(place, ABOUT, {"solver": "covariance"}, resume=True)
    assert again.choices == {"solver": "krylov"}
    for number in range(2):
        (found,) = again.recall(("pass", number))
        np.testing.assert_array_equal(found, np.full(3, number))
    assert recorded(place)[0] == 4
    assert again.recall(("another pass", 2)) is None
    assert recorded(place)[0] == 2
    again.record(("another pass", 2), 5.0)
    assert again.recall(("pass", 3)) is None
    again.close()
    third = begun(place, resume=True)
    assert [third.recall(("pass", 0)) is None, third.recall(("pass", 1)) is None] == [False, False]
    assert third.recall(("another pass", 2)) == (5.0,)
    third.close()
    discard(place)
    assert read_header(place) is None
    assert recorded(place) == (0, 0)


def test_a_damaged_result_and_all_after_it_are_made_again(tmp_path: Path) -> None:
    place, entry = str(tmp_path / "c"), tmp_path / "c" / "000002.npz"
    begun(place, entries=5).close()
    content = bytearray(entry.read_bytes())
    content[content.index(np.full(3, 2).tobytes())] ^= 1
    entry.write_bytes(content)
    again = begun(place, resume=True)
    assert [again.recall(("pass", number)) is None for number in range(3)] == [False, False, True]
    assert recorded(place)[0] == 2
    again.close()


def test_a_checkpoint_is_not_written_over_and_not_taken_for_another(place: str) -> None:
    begun(place, entries=1).close()
    with pytest.raises(StoreError, match="go on with resume=True"):
        begun(place)
    with pytest.raises(StoreError, match=r"data shape was \[3, 4\] and is \[3, 5\]"):
        Checkpoint(place, ABOUT | {"data": {"shape": [3, 5]}}, {}, resume=True)
    with pytest.raises(StoreError, match="graph was None and is 'x'"):
        Checkpoint(place, ABOUT | {"graph": "x"}, {}, resume=True)
    assert recorded(place)[0] == 1


def test_two_processes_do_not_write_one_checkpoint(tmp_path: Path) -> None:
    first = begun(str(tmp_path / "c"))
    with pytest.raises(StoreError, match="is being written by another process"):
        begun(str(tmp_path / "c"), resume=True)
    first.close()
    begun(str(tmp_path / "c"), resume=True).close()


def test_other_directories_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(StoreError, match="exists and is no checkpoint"):
        begun(str(tmp_path))
    assert os.listdir(tmp_path) == ["mine.txt"]
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "fit.json").write_text('{"dlatent_checkpoint": 99, "about": {}, "choices": {}}')
    with pytest.raises(StoreError, match="a checkpoint of version 99"):
        read_header(tmp_path / "c")
    header = {"dlatent_checkpoint": 1, "about": ABOUT, "choices": {}}
    (tmp_path / "c" / "fit.json").write_text(json.dumps(header))
    with pytest.raises(StoreError, match="its choices are"):
        begun(str(tmp_path / "c"), resume=True)
    (tmp_path / "c" / "fit.json").write_text("{")
    with pytest.raises(StoreError, match="a damaged checkpoint"):
        read_header(tmp_path / "c")


def test_what_else_lies_there_stays(tmp_path: Path) -> None:
    begun(str(tmp_path / "c"), entries=2).close()
    (tmp_path / "c" / "notes.txt").write_text("mine")
    discard(tmp_path / "c")
    assert os.listdir(tmp_path / "c") == ["notes.txt"]


def test_a_place_that_cannot_be_written_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"cannot write a checkpoint at .*file"):
        begun(str(tmp_path / "file" / "c"))


def test_what_is_no_file_where_a_member_is_begun(tmp_path: Path) -> None:
    checkpoint = begun(str(tmp_path / "c"))
    (tmp_path / "c" / "000000.npz.part").mkdir()
    with pytest.raises(StoreError, match=f"cannot write the checkpoint {tmp_path}/c"):
        checkpoint.record("pass", 1.0)
    checkpoint.close()


@pytest.mark.parametrize(
    "place", ["http://127.0.0.1:1/c", "ftp://127.0.0.1:1/c", "zip://c::http://127.0.0.1:1/a", "no://c"]
)
def test_a_place_that_is_out_of_reach_is_named(place: str) -> None:
    for work in (begun, verify, discard):
        with pytest.raises(StoreError, match=f"cannot reach {place}: .*; check the address"):
            work(place)
