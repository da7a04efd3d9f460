"""Whatever moment a writer dies at, the old store or the new one is found at its destination, and the next writer
clears up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from dlatent import open_data
from dlatent.errors import StoreError
from dlatent.stores import temporary as beside
from dlatent.stores.atomic import new_store, require_writable
from dlatent.stores.ingest.run import scratch
from dlatent.stores.location import is_node

HEAD = """
    import os, sys, threading
    import numpy as np
    from pathlib import Path
    from dlatent.stores import temporary as beside
    from dlatent.stores.atomic import new_store
    from dlatent.stores.ingest.run import scratch
    path = sys.argv[1]
    def die():
        os.kill(os.getpid(), 9)
    def write():
        with new_store(path, overwrite=True) as group:
            group.create_array("x", data=np.full((4, 3), 2.0))
"""


def write(path: Path, value: float, **options: bool) -> None:
    with new_store(path, **options) as group:
        group.create_array("x", data=np.full((4, 3), value))


def first(path: Path) -> float:
    return float(open_data(path).blocks[0].load()[0, 0])


def run(script: str, path: Path) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", textwrap.dedent(HEAD) + textwrap.dedent(script), str(path)]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def killed(script: str, path: Path) -> None:
    child = run(script, path)
    child.communicate(timeout=60)
    assert child.returncode == -signal.SIGKILL


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


BETWEEN = """
    rename = Path.rename
    def once(self, goal):
        rename(self, goal)
        die()
    Path.rename = once
    write()
"""


def test_an_old_store_whose_writer_died_between_two_renames_is_put_back(tmp_path: Path) -> None:
    for number, find in enumerate((open_data, is_node, lambda path: require_writable(path, overwrite=True))):
        path = tmp_path / f"{number}.zarr"
        write(path, 1.0)
        killed(BETWEEN, path)
        assert not path.exists()
        find(str(path))
        assert first(path) == 1.0
        with pytest.raises(StoreError, match="already exists"):
            write(path, 3.0)
        write(path, 3.0, overwrite=True)
    assert names(tmp_path) == ["0.zarr", "1.zarr", "2.zarr"]


def test_an_old_store_that_another_machine_moved_aside_is_named(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    write(path, 1.0)
    killed(BETWEEN.replace("write()", "beside.HOST = '0badcafe-'; write()"), path)
    for act in (open_data, lambda place: write(place, 3.0, overwrite=True)):
        with pytest.raises(StoreError, match=r"old store is whole and lies at .*old-0badcafe.*move it back"):
            act(path)
    (aside,) = (tmp_path / name for name in names(tmp_path) if beside.OLD in name)
    aside.rename(path)
    assert first(path) == 1.0


def test_what_a_living_writer_works_in_stays(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    script = """
        with new_store(path) as group, scratch(path) as directory:
            (directory / "counts").write_text("")
            print("ready", flush=True)
            input()
            group.create_array("x", data=np.full((4, 3), 1.0))
            assert (directory / "counts").exists()
    """
    child = run(script, path)
    assert child.stdout is not None
    assert child.stdout.readline().strip() == "ready"
    assert len(names(tmp_path)) == 2
    write(path, 2.0)
    assert len(names(tmp_path)) == 3
    assert first(path) == 2.0
    _, _ = child.communicate("go\n", timeout=60)
    assert child.returncode == 1  # the place has been taken meanwhile
    assert names(tmp_path) == ["s.zarr"]


def test_writers_in_one_process_do_not_sweep_each_other(tmp_path: Path) -> None:
    path = tmp_path / "s.zarr"
    with new_store(path, overwrite=True) as outer, scratch(path) as directory:
        write(path, 2.0, overwrite=True)
        assert directory.exists()
        outer.create_array("x", data=np.full((4, 3), 1.0))
    assert first(path) == 1.0
    assert names(tmp_path) == ["s.zarr"]
    assert not beside._LOCKS


def test_what_killed_writers_of_other_stores_or_machines_left_stays(tmp_path: Path) -> None:
    others = [".t.zarr.partial-" + beside.HOST + "12", ".s.zarr.partial-0badcafe-12", ".s.zarr.partial-0123456789ab"]
    for name in others:
        (tmp_path / name).mkdir()
    write(tmp_path / "s.zarr", 1.0)
    assert names(tmp_path) == sorted([*others, "s.zarr"])


def test_a_edge_to_a_store_is_replaced_by_the_store_and_what_it_led_to_stays(tmp_path: Path) -> None:
    write(tmp_path / "real.zarr", 1.0)
    (tmp_path / "s.zarr").symlink_to(tmp_path / "real.zarr")
    write(tmp_path / "s.zarr", 2.0, overwrite=True)
    assert (first(tmp_path / "s.zarr"), first(tmp_path / "real.zarr")) == (2.0, 1.0)
    assert names(tmp_path) == ["real.zarr", "s.zarr"]


def test_without_locks_nothing_is_removed_and_writing_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise OSError(95, "operation not supported")

    leftover = tmp_path / f".s.zarr{beside.PARTIAL}{beside.HOST}12"
    leftover.mkdir()
    monkeypatch.setattr(beside.fcntl, "flock", none)
    write(tmp_path / "s.zarr", 1.0)
    write(tmp_path / "s.zarr", 2.0, overwrite=True)
    assert first(tmp_path / "s.zarr") == 2.0
    assert names(tmp_path) == sorted([leftover.name, "s.zarr"])


def test_a_place_that_cannot_be_written_is_known_before(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    require_writable(tmp_path / "new" / "deeper" / "s.zarr", overwrite=False)
    with pytest.raises(StoreError, match="cannot write a store"):
        require_writable(tmp_path / "file" / "s.zarr", overwrite=False)
    with pytest.raises(StoreError, match="cannot write a store"):
        require_writable(tmp_path / ("n" * 250), overwrite=False)
    with pytest.raises(StoreError, match="cannot write a store"):
        require_writable("https://127.0.0.1:9/s.zarr", overwrite=False)
    require_writable(f"memory://{tmp_path.name}/s.zarr", overwrite=False)
    assert names(tmp_path) == ["file"]


def test_a_folder_in_which_nothing_can_be_made_is_not_tried_for_ever() -> None:
    with pytest.raises(StoreError, match="cannot write a store at /proc/x"):
        require_writable("/proc/x", overwrite=False)
