"""Commands on stores in any order, killed, resumed and on damaged chunks, against a model of a few dictionaries.

The model of a place is the call that has made what it holds, with what its inputs held then.  The same calls, made once
without a disturbance in another folder, say which bits must be there.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import machine_cases as cases
import numpy as np
import pytest
import zarr
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from machine_cases import DONE, GRAPH, INPUTS, KILLED, PLACES, REFUSED, SOURCES, Made, Undisturbed

from dlatent import StoreError, load, verify
from tests.fits import bits
from tests.law_examples import runs

pytestmark = pytest.mark.filterwarnings("ignore")


MOST = st.sampled_from([True, True, True, False])
MOMENTS = st.none() | st.integers(1, 320)
HOW = st.fixed_dictionaries({"overwrite": MOST, "resume": MOST, "moment": MOMENTS, "command": st.booleans()})
"""How a call is made: a moment at which it is killed, or by the library or the command line."""


class Stores(RuleBasedStateMachine):
    """A folder with inputs, and four places of stores."""

    def __init__(self, undisturbed: Undisturbed) -> None:
        super().__init__()
        self.undisturbed = undisturbed
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = Path(self.temporary.name)
        cases.write_inputs(self.folder)
        self.held = dict[str, Made]()
        self.damaged = set[str]()
        self.begun = dict[str, tuple[Made | None, list[str]]]()
        """Places with a checkpoint: what is being made (None where its header is damaged), and of which."""
        self.signed = set[str]()
        """Places that hold what a call has made which was killed before it removed its checkpoint."""
        self.littered = dict[str, list[Any]]()
        """Places beside which killed processes may have left something, with what was there before."""

    def teardown(self) -> None:
        self.temporary.cleanup()

    def write(self, data: st.DataObject, call: str, option: int, how: dict[str, Any], file: str = "") -> None:
        """Make a call, most often of what it takes; what is killed with a checkpoint often goes on at once."""
        inputs = [file if kind == "file" else self.one_of(data, kind) for kind in cases.TAKES[call]]
        out = data.draw(st.sampled_from([name for name in PLACES if name not in inputs] * 4 + [*PLACES]))
        self.call(call, option, inputs, out, how)
        if out in self.begun and data.draw(st.booleans()):
            self.go_on_with(out, how | {"moment": None})

    def one_of(self, data: st.DataObject, kind: str) -> str:
        right = [name for name, made in sorted(self.held.items()) if cases.KINDS.get(made.call) == kind]
        whole = [name for name in right if name not in self.damaged]
        return data.draw(st.sampled_from(whole * 16 + right + [*PLACES, GRAPH]))

    def go_on_with(self, out: str, how: dict[str, Any]) -> None:
        made, inputs = self.begun[out]
        if made is not None:
            self.call(made.call, made.option, inputs, out, how | {"resume": True})

    def refusals(self, made: Made | None, inputs: list[str], outputs: list[str], how: dict[str, Any]) -> set[str]:
        """The places of which one must be named, as the call cannot be carried out; none where it can."""
        out = outputs[0]
        names = {name for name in inputs if name not in self.held and name in (*PLACES, GRAPH)}
        names |= {name for name in inputs if name in self.damaged or name in outputs}
        if names or not self.undisturbed.place(made).exists():
            names |= {*inputs, "feature"}  # one of them may be refused for its kind before, or for its width
        left = how["resume"] and made is not None and self.begins(out) == made == self.held.get(out)
        if not how["overwrite"] and not (left and out in self.signed):
            names |= {name for name in outputs if name in self.held}
        if how["resume"] and out in self.begun and self.begins(out) != made:
            names.add(f"{out}.checkpoint")
        return {name if name == "feature" else f"{self.folder}/{name}" for name in names}

    def call(self, call: str, option: int, inputs: list[str], out: str, how: dict[str, Any]) -> None:
        """Make a call, and look at what became of everything."""
        goes_on = call in ("fit", "transform") or (call == "ingest" and inputs != ["rows.npy"])
        how = how | {"resume": how["resume"] and goes_on}
        outputs = [out, GRAPH] if call == "reorder" else [out]
        held = [self.held.get(name, name if name not in (*PLACES, GRAPH) else None) for name in inputs]
        made = None if None in held else Made(call, option, tuple(held))
        refusals = self.refusals(made, inputs, outputs, how)
        before = cases.everything(self.folder)
        ended, said = cases.carried_out(made or Made(call, option, ()), inputs, self.folder / out, **how)
        after = cases.everything(self.folder)
        ours = {name for name in {*before, *after} if name.removeprefix(".").startswith(tuple(outputs))}
        assert {name: before.get(name) for name in {*before, *after} - ours} == {
            name: files for name, files in after.items() if name not in ours
        }
        read = self.begins(out) == made and self.damaged & {*inputs}  # a result of what is damaged now is kept
        may = refusals <= ({f"{self.folder}/{name}" for name in inputs} | {"feature"} if read else set())
        if ended == KILLED:
            for name in outputs:
                self.littered.setdefault(name, []).append(before.get(name))
        for name in outputs:
            if ended == DONE or (ended == KILLED and self.is_new(name, before.get(name))):
                assert may, refusals
                assert made is not None
                self.now_holds(name, made if name == out else made._replace(call="graph"), ended)
                if ended == KILLED and how["resume"]:
                    self.signed.add(name)
            elif ended == REFUSED:
                assert after.get(name) == before.get(name)
        assert ended != REFUSED or any(name in said for name in refusals), (said, refusals)
        kept = f"{out}.checkpoint"
        assert not (ended == DONE and how["resume"] and kept in after)
        if call != "fit" and refusals == {f"{self.folder}/{name}" for name in outputs}:
            assert after.get(kept) == before.get(kept)  # what is taken is refused before anything is begun
        self.look_at_checkpoint(out, made, inputs, how)
        self.look_beside()

    def is_new(self, name: str, before: dict[str, bytes] | None) -> bool:
        """Whether a killed call has left something else than before; who looks there first puts an old store back."""
        if not (self.folder / name).exists():
            with contextlib.suppress(StoreError):
                verify(self.folder / name)
        return cases.everything(self.folder).get(name) != before

    def look_beside(self) -> None:
        """Nothing lies beside stores but what goes on, and what killed calls have left."""
        left = tuple(f".{name}.partial-" for name in self.littered)
        known = {*self.held, *INPUTS, *(f"{name}.checkpoint" for name in PLACES)}
        strays = [name for name in os.listdir(self.folder) if name not in known and not name.startswith(left)]
        assert not strays, strays

    def now_holds(self, name: str, made: Made, ended: int) -> None:
        """A place holds, to the last bit, what the call makes undisturbed."""
        assert cases.chunks(self.folder / name) == cases.chunks(self.undisturbed.place(made))
        self.held[name] = made
        self.damaged.discard(name)
        self.signed.discard(name)
        if ended == DONE:
            self.littered.pop(name, None)
        else:
            assert verify(self.folder / name).intact

    def look_at_checkpoint(self, out: str, made: Made | None, inputs: list[str], how: dict[str, Any]) -> None:
        if not (self.folder / f"{out}.checkpoint/fit.json").exists():
            self.begun.pop(out, None)
        elif out not in self.begun:
            assert how["resume"]
            assert made is not None
            self.begun[out] = made, inputs

    def begins(self, out: str) -> Made | None:
        return self.begun.get(out, (None,))[0]

    @initialize(source=st.sampled_from(SOURCES), components=st.sampled_from([1, 2]))
    def begin(self, source: str, components: int) -> None:
        data = Made("ingest", 200, (source,))
        self.held = {"a.zarr": data, "b.zarr": Made("fit", components, (data,))}
        for name, made in self.held.items():
            shutil.copytree(self.undisturbed.place(made), self.folder / name)

    @rule(name=st.sampled_from([*PLACES, GRAPH]))
    def look(self, name: str) -> None:
        """What opens is what was written; else the place is named."""
        place, made = self.folder / name, self.held.get(name)
        status, said = cases.run("verify", place)
        assert status == (DONE if made is not None and name not in self.damaged else REFUSED), said
        assert str(place) in said
        if made is None:
            assert not place.exists()
            return
        opens = load if made.call in ("fit", "append") else cases.edges if made.call == "graph" else cases.values
        if name in self.damaged:
            with pytest.raises(StoreError, match=re.escape(str(place))):
                opens(place)
        elif made.call in ("fit", "append"):
            assert bits(load(place)) == bits(load(self.undisturbed.place(made)))
        elif made.call != "graph":
            np.testing.assert_array_equal(cases.values(place), self.undisturbed.rows(made))

    @precondition(lambda self: self.held)
    @rule(data=st.data(), way=st.sampled_from(["flip", "cut", "lose"]), part=st.floats(0, 0.99))
    def damage(self, data: st.DataObject, way: str, part: float) -> None:
        """Damage a chunk of what calls read."""
        if not (whole := sorted({*self.held} - self.damaged)):
            return
        name = data.draw(st.sampled_from(whole))
        files = cases.chunks_that_are_read(self.folder / name, self.held[name].call)
        cases.damage(self.folder / name / data.draw(st.sampled_from(files)), way, part)
        self.damaged.add(name)

    @rule(name=st.sampled_from([*PLACES, GRAPH]))
    def delete(self, name: str) -> None:
        """An old store whose writer died when the new one was just there would be put back: it must be whole."""
        for aside in self.folder.glob(f".{name}.partial-old-*"):
            assert cases.contents(aside) in self.littered[name]
            shutil.rmtree(aside)
        shutil.rmtree(self.folder / name, ignore_errors=True)
        self.held.pop(name, None)
        self.damaged.discard(name)

    @precondition(lambda self: self.begun)
    @rule(data=st.data(), how=HOW)
    def go_on(self, data: st.DataObject, how: dict[str, Any]) -> None:
        self.go_on_with(data.draw(st.sampled_from(sorted(self.begun))), how)

    @precondition(lambda self: self.begun)
    @rule(data=st.data(), way=st.sampled_from(["flip", "cut", "lose", "delete"]), part=st.floats(0, 0.99))
    def damage_checkpoint(self, data: st.DataObject, way: str, part: float) -> None:
        """A result that is damaged or lost is made again; what was begun without its header is begun anew."""
        name = data.draw(st.sampled_from(sorted(self.begun)))
        place = self.folder / f"{name}.checkpoint"
        if way == "delete":
            shutil.rmtree(place)
            del self.begun[name]
            return
        file = data.draw(st.sampled_from(sorted(cases.contents(place))))
        cases.damage(place / file, way, part)
        if file == "fit.json" and way == "lose":
            del self.begun[name]
        elif file == "fit.json":
            self.begun[name] = None, []

    @rule(data=st.data(), source=st.sampled_from(SOURCES), how=HOW)
    def ingest(self, data: st.DataObject, source: str, how: dict[str, Any]) -> None:
        self.write(data, "ingest", 200, how, source)

    @rule(data=st.data(), size=st.sampled_from([300, 1000]), how=HOW)
    def rechunk(self, data: st.DataObject, size: int, how: dict[str, Any]) -> None:
        self.write(data, "rechunk", size, how)

    @rule(data=st.data(), how=HOW)
    def reorder(self, data: st.DataObject, how: dict[str, Any]) -> None:
        self.write(data, "reorder", 0, how, "edges.csv")

    @rule(data=st.data(), components=st.sampled_from([1, 2]), how=HOW)
    def fit(self, data: st.DataObject, components: int, how: dict[str, Any]) -> None:
        self.write(data, "fit", components, how)

    @rule(data=st.data(), how=HOW)
    def append(self, data: st.DataObject, how: dict[str, Any]) -> None:
        self.write(data, "append", 2, how)

    @rule(data=st.data(), how=HOW)
    def transform(self, data: st.DataObject, how: dict[str, Any]) -> None:
        self.write(data, "transform", 0, how)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Undisturbed]:
    # One read or write after the other, so that a process dies at the same moment again.
    with zarr.config.set({"async.concurrency": 1, "threading.max_workers": 1}):
        yield Undisturbed(tmp_path_factory.mktemp("undisturbed"))


def test_every_store_is_whole_or_absent_whatever_happens(undisturbed: Undisturbed) -> None:
    run_state_machine_as_test(lambda: Stores(undisturbed), settings=runs(8))
