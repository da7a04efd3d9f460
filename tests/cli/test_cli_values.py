"""How values on the command line are read."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from dlatent.cli.arguments import add_parameters, byte_count
from dlatent.cli.inputs import split, without
from dlatent.cli.show import as_json
from dlatent.errors import DataError


@pytest.mark.parametrize(
    ("text", "number"),
    [("1", 1), ("512 B", 512), ("1.5kB", 1500), ("32MiB", 32 * 2**20), ("2 gb", 2 * 10**9), ("1TiB", 2**40)],
)
def test_bytes(text: str, number: int) -> None:
    assert byte_count(text) == number


@pytest.mark.parametrize("text", ["", "0", "0.1B", "-3MiB", "MiB", "3 apples", "nan"])
def test_what_is_no_number_of_bytes(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="32MiB"):
        byte_count(text)


def test_paths_and_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("odd#name.csv").write_text("x")
    assert split("data.zarr#topic") == ("data.zarr", "topic")
    assert split("#topic") == ("", "topic")
    assert split("labels.txt") == ("labels.txt", None)
    assert split("odd#name.csv") == ("odd#name.csv", None)
    assert split("odd#name.csv#y") == ("odd#name.csv", "y")


def test_a_value_for_unlabelled_rows() -> None:
    numbers = without(np.array([3, 1, 3, 2]), "3")
    assert numbers.tolist() == [None, 1, None, 2]
    np.testing.assert_array_equal(without(np.array([3.0, 1.0]), "3"), [np.nan, 1])
    assert without(np.array(["a", "?", "b"]), "?").tolist() == ["a", None, "b"]
    assert without(np.array(["a", None, "b"], dtype=object), "b").tolist() == ["a", None, None]
    outputs = without(np.array([[0, 1], [9, 9], [9, 1]]), "9")
    assert outputs.tolist() == [[0, 1], [None, None], [9, 1]]


@pytest.mark.parametrize("values", [np.array([1, 2]), np.array(["a", "b"])])
def test_a_value_that_no_row_has_is_a_mistake(values: np.ndarray) -> None:
    with pytest.raises(DataError, match="'x'"):
        without(values, "x")


def test_json_knows_no_nan(capsys: pytest.CaptureFixture[str]) -> None:
    as_json({"a": np.float64("nan"), "b": (np.int64(1), float("inf")), "c": np.array(["é"]), 1: None})
    assert '"a": null' in (said := capsys.readouterr().out)
    assert "é" in said
    assert "Infinity" not in said


def example(
    source: str | Sequence[str],
    out: str,
    *,
    base: Literal["auto", 0] = "auto",
    weighting: Literal["none", "tfidf"] = "none",
    block_bytes: int = 2**20,
    most: int | None = None,
    columns: Sequence[str] | None = None,
    exact: bool = False,
    overwrite: bool = False,
    array: object = None,
) -> None:
    """Do nothing.

    Parameters
    ----------
    source : str or sequence of str
        What is read.  It may be
        long.
    out : str
        What is written.
    base : {"auto", 0}, default "auto"
        The first number, at 100 %.
    weighting : {"none", "tfidf"}, default "none"
        As in `other`.
    block_bytes : int, default 1048576
        Size.
    most : int, optional
        N, at most.
    columns : sequence of str, optional
        Names.
    exact : bool, default False
        Exactly.
    overwrite : bool, default False
        Not this.
    array : optional
        No command line can give it.
    """


def test_options_are_those_of_a_function() -> None:
    parser = argparse.ArgumentParser()
    add_parameters(
        parser,
        example,
        named={"weighting": "tfidf", "block_bytes": "block-size"},
        texts={"most": "no more"},
        without=["array"],
        exclusive=["most", "exact"],
    )
    given = vars(parser.parse_args(["a", "b", "c"]))
    assert given == {"source": ["a", "b"], "out": "c", "overwrite": False}
    words = "a c --base 0 --tfidf --block-size 1KiB --most 3 --columns x --columns y --overwrite"
    given = {"base": 0, "weighting": "tfidf", "block_bytes": 1024, "most": 3, "columns": ["x", "y"]}
    assert vars(parser.parse_args(words.split())) == {"source": ["a"], "out": "c", "overwrite": True, **given}
    for wrong in ("a c --base 1", "a c --most 0", "a c --block-size 0", "a c --most 1 --exact", "a c --array x", "a"):
        with pytest.raises(SystemExit):
            parser.parse_args(wrong.split())
    said = " ".join(parser.format_help().split())
    for help in (
        "SOURCE what is read",
        "--base {auto,0} the first number, at 100 % (default auto)",
        "--most N no more",
    ):
        assert help in said
    assert "--block-size SIZE size (default 1MiB)" in said
    assert "replace the store at the destination" in said
