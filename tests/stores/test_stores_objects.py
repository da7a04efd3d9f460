"""Open stores of Zarr as places."""

from __future__ import annotations

import numpy as np
import pytest
import zarr
from zarr.storage import MemoryStore

from dlatent.stores.objects import url_of


def test_a_copy_for_reading_is_the_same_place_and_other_stores_are_not():
    one, other = MemoryStore(), MemoryStore()
    zarr.create_array(one, data=np.ones(3))
    assert url_of(one.with_read_only(True)) == url_of(one) != url_of(other)


def test_one_bucket_of_two_servers_is_two_places():
    obstore = pytest.importorskip("obstore.store", reason="obstore is not installed")
    stores = [
        zarr.storage.ObjectStore(obstore.S3Store("bucket", region="us-east-1", **server))
        for server in ({}, {"endpoint": "https://a.example"})
    ]
    assert url_of(stores[0]) != url_of(stores[1])
