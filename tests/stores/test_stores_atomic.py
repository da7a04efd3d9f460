"""A store is whole, or it is not there."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.storage import MemoryStore

from dlatent import open_data
from dlatent.errors import StoreError
from dlatent.stores.atomic import MARKER, Unfinished, new_store


def write(target: str | Path, value: float, **options: bool) -> None:
    with new_store(target, **options) as group:
        group.create_array("x", data=np.full((4, 3), value))


def write_and_fail(target: str | Path, error: type[BaseException], **options: bool) -> None:
    with new_store(target, **options) as group:
        group.create_array("x", data=np.zeros((2, 2)))
        raise error


def write_twice_at_once(target: str | Path) -> None:
    with new_store(target) as group:
        group.create_array("x", data=np.zeros((2, 2)))
        write(target, 1.0)


def first(target: str | Path) -> float:
    return float(open_data(target).blocks[0].load()[0, 0])


@pytest.fixture(params=["path", "memory", "remote"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A local path, this process's memory, and files reached through fsspec alone, as those of an object store are."""
    return {
        "path": str(tmp_path / "s.zarr"),
        "memory": f"memory://{tmp_path.name}/s.zarr",
        "remote": f"local://{tmp_path}/s.zarr",
    }[request.param]


def test_a_finished_store_says_so(target: str) -> None:
    with new_store(target, kind="matrix", version=1) as group:
        group.create_array("x", data=np.ones((2, 2)))
        assert group.attrs[MARKER]["complete"] is False
    root = zarr.open_group(target, mode="r")
    assert root.attrs[MARKER] == {"kind": "matrix", "version": 1, "complete": True}


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_a_failed_writer_leaves_nothing(target: str, tmp_path: Path, error: type[BaseException]) -> None:
    with pytest.raises(error):
        write_and_fail(target, error)
    with pytest.raises(StoreError):
        open_data(target)
    assert os.listdir(tmp_path) == []


def test_an_existing_store_is_not_touched_unasked(target: str) -> None:
    write(target, 1.0)
    with pytest.raises(StoreError, match="overwrite=True"):
        write(target, 2.0)
    assert first(target) == 1.0


def test_overwrite_replaces(target: str, tmp_path: Path) -> None:
    write(target, 1.0)
    write(target, 2.0, overwrite=True)
    assert first(target) == 2.0
    assert set(os.listdir(tmp_path)) <= {"s.zarr"}


def test_a_failed_overwrite_keeps_the_old_local_store(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    write(path, 1.0)
    with pytest.raises(ZeroDivisionError):
        write_and_fail(path, ZeroDivisionError, overwrite=True)
    assert first(path) == 1.0
    assert os.listdir(tmp_path) == ["s.zarr"]


@pytest.mark.parametrize("name", [None, "s.zarr/c/0", ".s.zarr.partial-1/c/0", "log.txt"])
def test_an_error_of_the_disk_names_the_store_unless_it_names_another_file(tmp_path: Path, name: str | None) -> None:
    error = OSError(errno.EIO, "no luck", *(() if name is None else (str(tmp_path / name),)))
    raised = pytest.raises(OSError if name == "log.txt" else StoreError, match=r"no luck")
    with raised as found, new_store(tmp_path / "s.zarr"):
        raise error
    assert (found.value is error) == (name == "log.txt")
    assert ("cannot write" in str(found.value)) == (name != "log.txt")


def test_a_directory_that_is_no_store_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(StoreError, match="no Zarr store"):
        write(tmp_path, 1.0, overwrite=True)
    assert (tmp_path / "thesis.txt").exists()


def test_a_store_written_meanwhile_is_not_replaced_unasked(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    with pytest.raises(StoreError, match="already exists"):
        write_twice_at_once(path)
    assert first(path) == 1.0
    assert os.listdir(tmp_path) == ["s.zarr"]


def test_what_a_killed_writer_leaves_does_not_open(tmp_path: Path) -> None:
    script = f"""
        import numpy as np
        from dlatent.stores.atomic import new_store
        with new_store({str(tmp_path / "s.zarr")!r}) as group:
            group.create_array("x", data=np.ones((2, 2)))
            print("ready", flush=True)
            input()
    """
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline().strip() == "ready"
    child.send_signal(signal.SIGKILL)
    child.wait()
    (leftover,) = tmp_path.iterdir()
    for place in (leftover, leftover / "x"):
        with pytest.raises(StoreError, match="half-written"):
            open_data(place)
    renamed = leftover.rename(tmp_path / "s.zarr")
    for place in (renamed, renamed / "x"):
        with pytest.raises(StoreError, match="half-written"):
            open_data(place)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot write a store"):
        write(tmp_path / "file" / "s.zarr", 1.0)


def test_what_zarr_still_writes_when_its_caller_is_interrupted_is_waited_for(tmp_path: Path) -> None:
    """An interrupt ends the wait of the caller only; a chunk that came later would make the removed store again."""
    begun, written = threading.Event(), []

    class Slow(MemoryStore):
        async def set(self, key: str, *_: Any, **__: Any) -> None:
            begun.set()
            await asyncio.sleep(0.2)
            written.append(key)

    writer = threading.Thread(target=lambda: zarr.create_group(Slow()))
    writer.start()
    assert begun.wait(30)
    Unfinished(str(tmp_path / "s.zarr"), str(tmp_path / "unfinished.zarr"), overwrite=False).abort()
    assert written
    writer.join()
