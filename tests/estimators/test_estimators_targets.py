"""What is decided of targets equals a look at every row, however many rows have each value."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dlatent.fitted.target_values as module
from dlatent import DataError
from dlatent.fitted.targets import encode_targets
from tests.law_examples import examples

NOTHING = [None, float("nan"), np.float64("nan"), np.float32("nan")]
TEXTS = ["ant", "bee", "cow", "", np.str_("ant")]
WHOLE = [-1, 0, 1, 2, 10**12, -1.0, 1.0, 2.0, np.float64(3.0), True, False]
NUMBERS = [*WHOLE, 0.5, -2.25, float("inf")]
COLUMNS = st.one_of(
    *(st.lists(st.sampled_from([*NOTHING, *some]), min_size=1, max_size=40) for some in (TEXTS, WHOLE, NUMBERS)),
    st.lists(st.sampled_from([*NOTHING, *TEXTS, *NUMBERS, np.int64(4), np.float32(1.5)]), min_size=1, max_size=40),
)


def column(values):
    made = np.empty(len(values), dtype=object)
    made[:] = values
    return made


def is_missing(value):
    return value is None or (isinstance(value, (float, np.floating)) and bool(np.isnan(value)))


def kind_by_rows(values):
    """What a column of targets is, from the definition: numbers with fractions are regression, and so are many whole
    floats, unless they count from 0 or 1; all others are classes."""
    seen = [v for v in values.tolist() if not is_missing(v)]
    if not all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in seen):
        return "class"
    if not all(float(v).is_integer() for v in seen):
        return "regression"
    labels = sorted({v for v in seen if v != -1})
    counted = any(labels == list(range(first, first + len(labels))) for first in (0, 1))
    whole = all(isinstance(v, int) for v in seen)
    return "class" if whole or counted or len(labels) <= 20 else "regression"


def labelled_by_rows(values):
    return [not is_missing(v) and not (isinstance(v, (int, float)) and v == -1) for v in values.tolist()]


@settings(max_examples=examples(300))
@given(COLUMNS)
def test_objects_are_what_their_rows_say(values):
    values = column(values)
    assert module.kind_of(values) == kind_by_rows(values)
    labels, present = module.labels_of_rows(values, len(values))
    assert present.tolist() == labelled_by_rows(values)
    assert labels is values


@settings(max_examples=examples(100))
@given(st.lists(st.sampled_from([0.0, 1.0, -1.0, 2.0, 0.5, np.nan, np.inf]), min_size=1, max_size=40))
def test_floats_are_what_their_rows_say(values):
    assert module.kind_of(np.array(values)) == kind_by_rows(np.array(values))


@pytest.mark.parametrize("first", [0, 1, 2, -60])
@pytest.mark.parametrize("count", [20, 21, 40])
def test_of_whole_floats_many_are_numbers_unless_they_count(first, count):
    values = np.concatenate([np.arange(first, first + count), [np.nan, -1.0]])
    assert module.kind_of(values) == kind_by_rows(values)
    assert module.kind_of(values) == ("class" if count == 20 or first in (0, 1) else "regression")
    gap = np.append(values, values[count - 1] + 2)
    assert module.kind_of(gap) == kind_by_rows(gap) == "regression"
    assert module.kind_of(values[:-2].astype(int)) == "class"


@settings(max_examples=examples(200))
@given(COLUMNS)
def test_classes_and_codes_are_those_of_sorted_labels(values):
    values = column(values)
    present = np.array(labelled_by_rows(values), dtype=bool)
    seen = values[present].tolist()
    try:
        expected = sorted(set(seen))
    except TypeError:
        with pytest.raises(DataError, match="the class labels mix types"):
            encode_targets(values, len(values), "class")
        return
    if len(expected) < 2 or len(expected) == len(seen) == len(values):
        with pytest.raises(DataError):
            encode_targets(values, len(values), "class")
        return
    found = encode_targets(values, len(values), "class")
    assert found.encoding.classes.tolist() == expected
    assert found.labelled.tolist() == present.tolist()
    codes = [expected.index(v) if known else -1 for v, known in zip(values.tolist(), present, strict=True)]
    assert found.rows.codes.tolist() == codes
    assert found.encoding.codes(values, len(values)).tolist() == codes


def test_an_unknown_label_is_named_by_its_first_row():
    encoding = encode_targets(np.array(["ant", "bee"] * 3), 6, "auto").encoding
    with pytest.raises(DataError, match=r"row 2: the label 'cow' is not among the model's classes \['ant', 'bee'\]"):
        encoding.codes(np.array(["bee", None, "cow", "dog", "cow"], dtype=object), 5)


def test_labels_that_cannot_be_are_refused():
    for values, words in (
        (column([[1], [2], [1]]), "values that can be no labels"),
        (column([10**400, 0.5, 1.5]), "must be numbers"),
    ):
        with pytest.raises(DataError, match=words):
            encode_targets(values, 3, "auto")


def test_a_class_label_takes_a_byte():
    """What the driver holds of class labels is one number a row, of the smallest type for so many classes."""
    few, many = np.arange(600) % 5, np.arange(600) % 200
    assert encode_targets(few, 600, "auto").nbytes == 600
    assert encode_targets(np.where(few == 4, -1, few), 600, "auto").nbytes == 600
    assert encode_targets(many, 600, "auto").nbytes == 1200
