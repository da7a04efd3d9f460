"""Opening saved models."""

from __future__ import annotations

from typing import Any

from dlatent.engine.machine import memory
from dlatent.errors import DlatentError, StoreError
from dlatent.fitted import fit
from dlatent.fitted.fit import SHARE
from dlatent.models import MODELS
from dlatent.stores.location import Place, place_text
from dlatent.stores.results import load as load_stored
from dlatent.stores.schema import check_values


def load(path: Place, *, max_bytes: int | None = None) -> Any:
    """Open a saved model: what it computes is equal, to the last bit, to what the saved one did.

    Parameters
    ----------
    path : path, URL or store of Zarr
        The store that `save` has written.
    max_bytes : int, optional
        Most bytes that its variables may take in memory.  By default 1 GiB, and more where a thousandth of it is stored
        and half of the memory of this machine holds it.

    Returns
    -------
    model
        The fitted model.

    Raises
    ------
    StoreError
        Where the path is no complete model, one of a newer version, one that is larger than it may be, or one that is
        damaged or has been changed since it was saved.

    Examples
    --------
    >>> import tempfile, numpy as np, dlatent
    >>> X = np.random.default_rng(0).normal(size=(50, 4))
    >>> model = dlatent.PPCA(1).fit(X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(folder + "/model.zarr")
    ...     again = dlatent.load(folder + "/model.zarr")
    >>> bool((again.transform(X) == model.transform(X)).all())
    True
    """
    place = place_text(path)
    stored = load_stored(path, max_bytes=max_bytes, room=int(SHARE * memory()) if max_bytes is None else None)
    kind = next((model for model in MODELS if model.name == stored.kind), None)
    if kind is None:
        known = ", ".join(model.name for model in MODELS)
        raise StoreError(f"{place} holds a {stored.kind!r}; this version of dlatent knows {known}")
    check_values(stored.variables, place)
    try:
        model = kind.load()(**stored.attributes["parameters"])
        model._check()
        return model._become(fit.from_saved(path, dict(stored.variables), stored.attributes))
    except (DlatentError, MemoryError) as error:
        raise StoreError(f"{place}: {error}") from error
    except Exception as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise StoreError(f"{place} is no {stored.kind} that can be: {what}; save the model again") from error
