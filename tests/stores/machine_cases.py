"""Calls that write stores, undisturbed or killed at any moment, for the machine of stores."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import zarr

from dlatent import PPCA, DlatentError, StoreError, ingest, load, open_data, open_graph, rechunk, reorder
from dlatent.cli import NOT_CONVERGED
from dlatent.cli.main import main

RNG = np.random.default_rng(0)
X = np.round(RNG.normal(size=(24, 2)) @ RNG.normal(size=(2, 4)) + 0.3 * RNG.normal(size=(24, 4)), 3)
X = np.where(np.abs(X) < 0.1, 0.5, X)  # a sparse file has the same rows
SOURCES = ("rows.npy", "rows.csv", "rows.svm")
PLACES = ("a.zarr", "b.zarr", "c.zarr", "d.zarr")
INPUTS = (*SOURCES, "names.txt", "edges.csv")
GRAPH = "graph.zarr"
"""The second output of `reorder`."""
STUDENT = ("--likelihood", "student", "--max-iter", "3")
"""A model whose fit takes several passes."""
DONE, REFUSED, KILLED = 0, 3, 9


class Made(NamedTuple):
    """What a place holds: the call that makes it, with a number that is its option, of files and what places held."""

    call: str
    option: int
    inputs: tuple[Any, ...]


KINDS = {"ingest": "data", "rechunk": "data", "reorder": "data", "fit": "model", "append": "model"}
TAKES = {
    "ingest": ["file"],
    "rechunk": ["data"],
    "reorder": ["data", "file"],
    "fit": ["data"],
    "append": ["data", "data"],
    "transform": ["model", "data"],
}


def sound(made: Made | str) -> bool:
    """Whether nothing is wrong with a call, nor with those before it."""
    if isinstance(made, str):
        return True
    kinds = [KINDS.get(one.call) if isinstance(one, Made) else "file" for one in made.inputs]
    return kinds == TAKES.get(made.call) and all(map(sound, made.inputs))


def write_inputs(folder: Path) -> None:
    np.save(folder / "rows.npy", X)
    np.savetxt(folder / "rows.csv", X, "%.3f", delimiter=",", header="p,q,r,s", comments="")
    lines = (" ".join(["0", *(f"{j}:{value:.3f}" for j, value in enumerate(row))]) for row in X)
    (folder / "rows.svm").write_text("\n".join(lines) + "\n")
    (folder / "names.txt").write_text("p\nq\nr\ns\n")
    (folder / "edges.csv").write_text("".join(f"{i},{7 * i % 24}\n" for i in range(1, 24)))


def carry_out(made: Made, inputs: list[Path], out: Path, overwrite: bool = False, resume: bool = False) -> None:
    """Make a call of the library."""
    if made.call == "ingest":
        names = None if inputs[0].suffix == ".csv" else inputs[0].with_name("names.txt")
        ingest(inputs[0], out, block_bytes=made.option, features=names, overwrite=overwrite, resume=resume)
    elif made.call == "rechunk":
        rechunk(inputs[0], out, chunk_bytes=made.option, overwrite=overwrite)
    elif made.call == "reorder":
        reorder(*inputs, out, out.with_name(GRAPH), direction="symmetrise", overwrite=overwrite)
    elif made.call == "append":
        model = PPCA(made.option)
        for part in inputs:
            model.partial_fit(part, client="serial")
        model.save(out, overwrite=overwrite)
    elif made.call == "fit":
        kept = {"checkpoint": f"{out}.checkpoint", "resume": True} if resume else {}
        model = PPCA(made.option, likelihood="student", max_iter=3).fit(inputs[0], client="serial", **kept)
        model.save(out, overwrite=overwrite)
        if resume:
            shutil.rmtree(f"{out}.checkpoint")
    else:
        load(inputs[0]).transform(inputs[1], out=out, overwrite=overwrite, resume=resume, client="serial")


def by_command(made: Made, inputs: list[Path], out: Path, overwrite: bool = False, resume: bool = False) -> None:
    """Make the same call by the command line, which ends with the status of bad data where the library refuses it."""
    names = ["--features", inputs[0].with_name("names.txt")] if inputs[0].suffix in (".npy", ".svm") else []
    kept = ["--checkpoint", f"{out}.checkpoint"] if resume and made.call == "fit" else []
    words: dict[str, list[Any]] = {
        "ingest": ["ingest", inputs[0], out, "--block-size", str(made.option), "--quiet", *names],
        "rechunk": ["rechunk", inputs[0], out, "--chunk-size", str(made.option), "--quiet"],
        "reorder": ["reorder", *inputs, out, out.with_name(GRAPH), "--direction", "symmetrise"],
        "fit": ["fit", "ppca", inputs[0], "-k", str(made.option), *STUDENT, "-o", out, "--quiet", *kept],
        "transform": ["transform", *inputs, "-o", out, "--quiet"],
    }
    status, said = run(*words[made.call], *["--resume"] * resume, *["--overwrite"] * overwrite)
    if status == REFUSED:
        raise StoreError(said)
    assert status in (DONE, NOT_CONVERGED), said


def run(*words: Any) -> tuple[int, str]:
    """The status of a command, and what it said."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        return main(words), said.getvalue()


def killed(work: Callable[[], None], moment: int) -> tuple[int, str]:
    """Do some work in a process that dies when it touches the file system for the `moment`-th time."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        status, left = 1, moment

        def count(event: str, *_: Any) -> None:
            nonlocal left
            left -= event.startswith(("open", "os.", "shutil."))
            if left == 0:
                os._exit(KILLED)

        try:
            sys.addaudithook(count)
            work()
            status = DONE
        except DlatentError as error:
            status = REFUSED
            os.write(writer, str(error).encode())
        except BaseException:
            os.write(writer, traceback.format_exc().encode())
        finally:
            os._exit(status)
    os.close(writer)
    with open(reader) as said:
        text = said.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text


def carried_out(
    made: Made, inputs: list[str], out: Path, *, overwrite: bool, resume: bool, moment: int | None, command: bool
) -> tuple[int, str]:
    """How a call ended: done, refused with words, or killed; by the library or the command line."""
    by = by_command if command and made.call != "append" and moment is None else carry_out

    def work() -> None:
        by(made, [out.with_name(name) for name in inputs], out, overwrite=overwrite, resume=resume)

    if moment is not None:
        return killed(work, moment)
    try:
        work()
    except DlatentError as error:
        return REFUSED, str(error)
    return DONE, ""


def everything(folder: Path) -> dict[str, dict[str, bytes]]:
    """What is in a folder, by name."""
    return {name: contents(folder / name) for name in os.listdir(folder)}


def contents(place: Path) -> dict[str, bytes]:
    """The files below a folder; of a file itself."""
    if place.is_file():
        return {"": place.read_bytes()}
    files = (os.path.join(above, name) for above, _, names in os.walk(place) for name in names)
    return {os.path.relpath(file, place): Path(file).read_bytes() for file in files}


def damage(file: Path, way: str, part: float) -> None:
    """Change, cut off or remove a file, at some part of its length."""
    content = bytearray(file.read_bytes())
    at = int(part * len(content))
    content[at : at + 1] = bytes([content[at] ^ 1]) if content else b""
    file.write_bytes(content if way == "flip" else content[:at])
    if way == "lose":
        file.unlink()


def values(place: Path) -> Any:
    """All rows of a store."""
    rows: list[Any] = [block.load() for block in open_data(place).blocks]
    return np.concatenate([part.toarray() if sp.issparse(part) else part for part in rows])


def edges(place: Path) -> Any:
    """All edges of a store."""
    graph = open_graph(place)
    return graph.rows.load(0, graph.samples)


def chunks(place: Path) -> dict[str, bytes]:
    """The chunks of a store; each store has its metadata under a seal of its own."""
    return {name: content for name, content in contents(place).items() if not name.endswith("zarr.json")}


def chunks_that_are_read(place: Path, call: str) -> list[str]:
    """The chunks of what a call has made that all who use it read."""
    read = {"fit": "", "append": "", "transform": "scores", "graph": "indices"}.get(call, "X")
    return sorted(file for file in chunks(place) if file.startswith(read))


class Undisturbed:
    """What calls make where nothing disturbs them."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._places = folder, dict[Made, Path]()
        write_inputs(folder)

    def place(self, made: Made | str) -> Path:
        """Where it lies; nothing is there where the call is refused."""
        if isinstance(made, str):
            return self._folder / made
        if made.call == "graph":
            return self.place(made._replace(call="reorder")).with_name(GRAPH)
        if made not in self._places:
            inputs = [self.place(one) for one in made.inputs]
            self._places[made] = place = Path(tempfile.mkdtemp(dir=self._folder)) / "out.zarr"
            try:
                carry_out(made, inputs, place)
            except DlatentError:
                assert not sound(made), made
        return self._places[made]

    def rows(self, made: Made) -> Any:
        """The rows of a store, as NumPy tells them."""
        if made.call == "transform":
            model, rows = made.inputs
            return load(self.place(model)).transform(self.rows(rows))
        if made.call == "reorder":
            order = zarr.open_array(self.place(made) / "uns/original_position")[:]
            assert sorted(order) == list(range(len(X)))
            return self.rows(made.inputs[0])[order]
        return self.rows(made.inputs[0]) if made.call == "rechunk" else X
