"""Laws of values as bytes."""

from __future__ import annotations

import contextlib

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from dlatent.errors import StoreError
from dlatent.gaussian.specification import Parameters
from dlatent.operators.kernels import Kernel
from dlatent.stores.checkpoint_codec import decode, encode, fingerprint

ARRAYS = hnp.arrays(
    st.sampled_from([np.dtype(name) for name in ("f8", "f4", "i8", "u1", "bool", ">f8")]),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)
PLAIN = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), ARRAYS, st.just(np.float64(0.1)))
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text() | st.tuples(st.integers(), st.integers()), inner, max_size=3),
        st.tuples(inner, inner, inner).map(lambda three: Parameters(*three)),
    ),
    max_leaves=8,
)


def same(one: object, other: object) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, (np.ndarray, np.generic)):
        assert isinstance(other, (np.ndarray, np.generic))
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, (tuple, list)):
        assert isinstance(other, (tuple, list))
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        assert isinstance(other, dict)
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, float):
        return repr(one) == repr(other)
    return one == other


@given(VALUES)
def test_what_is_unpacked_is_what_was_packed(value: object) -> None:
    assert same(decode(encode(value), "here"), value)


@given(VALUES, VALUES)
def test_only_equal_values_have_one_fingerprint(one: object, other: object) -> None:
    assert fingerprint(one) == fingerprint(one)
    assert same(one, other) or fingerprint(one) != fingerprint(other)


def test_sparse_rows_dataclasses_and_layouts_come_back() -> None:
    matrix = sp.csr_array(sp.random_array((5, 7), density=0.4, rng=np.random.default_rng(0)))
    found = decode(encode(matrix), "here")
    assert (found != matrix).nnz == 0
    assert isinstance(found, sp.csr_array)
    kernel = Kernel("rbf", gamma=0.5)
    assert decode(encode(kernel), "here") == kernel
    fortran = np.asfortranarray(np.arange(12.0).reshape(3, 4))
    assert decode(encode(fortran), "here").flags.f_contiguous


@given(st.data())
def test_damaged_bytes_never_give_another_value(data: st.DataObject) -> None:
    content = bytearray(encode((np.arange(50.0), "text", 0.25)))
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(StoreError):  # it says so, or the byte is one of those that tell nothing, as a date
        assert same(decode(bytes(content), "here"), (np.arange(50.0), "text", 0.25))


def test_damage_is_told_with_its_place() -> None:
    content = bytearray(encode(np.arange(50.0)))
    content[content.index(np.arange(50.0)[7:].tobytes())] ^= 1
    for bad in (bytes(content), bytes(content[:-30]), b""):
        with pytest.raises(StoreError, match="the place is damaged"):
            decode(bad, "the place")


def test_nothing_but_values_of_this_package_is_made() -> None:
    with pytest.raises(TypeError, match="a value of"):
        encode(object())
    with pytest.raises(TypeError, match="an array of objects"):
        encode(np.array([object()]))
    for name in ("os:system", "dlatent.stores.atomic:new_store", "dlatent.engine.connect:connect", "dlatentx:y"):
        content = encode(Parameters(1, 2, 3)).replace(  # type: ignore[arg-type]
            b"dlatent.gaussian.specification:Parameters", name.encode().ljust(38)
        )
        with pytest.raises(StoreError, match="is damaged"):
            decode(content, "here")
