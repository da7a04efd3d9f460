"""Results put into an AnnData or a MuData in place, as scanpy does."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from inspect import signature
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from dlatent.arrays import AxisLabels, DataSource
from dlatent.containers import refuse_mask
from dlatent.engine.connect import Where
from dlatent.errors import DataError
from dlatent.models.aligned import plain_rows
from dlatent.models.docstrings import described
from dlatent.models.graph_ppca import GraphPPCA
from dlatent.models.inputs import Annotated, TargetsLike
from dlatent.models.joint_views import by_observations
from dlatent.stores.open import annotated_matrix, open_data
from dlatent.stores.places import is_annotated, is_multimodal

Model = TypeVar("Model", bound=Any)


@described
def annotate(
    adata: Annotated,
    model: Model,
    *,
    layer: str | None = None,
    mask_var: str | npt.ArrayLike | None = None,
    y: TargetsLike = None,
    key: str | None = None,
    client: Where = None,
    **options: object,
) -> Model:
    """Fit a model to an AnnData or a MuData and put the results into it, in place, as scanpy does.

    `obsm["X_KEY"]` gets the scores (n_obs, K), `varm["KEY_loadings"]` the loadings (n_vars, K) where the model has any,
    of a MuData that of each modality, and `uns["KEY"]` the variances, the likelihood and the hyperparameters.

    Parameters
    ----------
    adata : AnnData or MuData
        In memory, backed by a file, or lazy; a backed one is read piece by piece.  The modalities of a MuData are
        views, which the names of observations join.
    model : estimator
        A model of samples × features, as `PPCA(20)`, of a MuData one of views, as `CorrespondencePPCA(20)`; it is
        fitted.
    layer : str, optional
        Name of the layer to be fitted, of each modality; by default `X`.
    mask_var : str or array of bool of shape (n_vars,), optional
        The variables to be fitted: a column of `var`, as "highly_variable", or booleans.  Loadings of the others are
        NaN.
    y : str or array of shape (n_obs,), optional
        Targets, for models that take them: a column of `obs`, or an array.
    key : str, optional
        Part of the names; by default the name of the model in small letters, as "ppca".
    **options : optional
        Other keywords of `fit`, as `graph=adata.obsp["connectivities"]`.

    Returns
    -------
    estimator
        The fitted model.

    Raises
    ------
    DataError
        For names that the AnnData or MuData does not have, and as `fit`.

    Examples
    --------
    >>> import anndata, numpy as np
    >>> from dlatent import PPCA, annotate
    >>> adata = anndata.AnnData(np.random.default_rng(0).normal(size=(50, 4)))
    >>> model = annotate(adata, PPCA(2))
    >>> adata.obsm["X_ppca"].shape
    (50, 2)
    """
    several = is_multimodal(adata)
    if not several and not is_annotated(adata):
        raise DataError(f"annotate takes an AnnData or a MuData, not a {type(adata).__name__}")
    if not hasattr(model, "get_params"):
        raise DataError(f"annotate takes a model, as PPCA(20), not a {type(model).__name__}")
    data, fitted = cast(Any, adata), cast(Any, model)
    if several and "correspondence" not in signature(fitted.transform).parameters:
        raise DataError(
            f"{type(model).__name__} has no scores of several views; give a model that has, as CorrespondencePPCA(20), "
            "or one of the modalities, as mdata.mod[name]"
        )
    parts, sources, masks = dict(data.mod) if several else {"": data}, dict[str, DataSource](), dict[str, Any]()
    for name, part in parts.items():
        masks[name] = slice(None) if mask_var is None else _mask(part, mask_var)
        matrix, labels = annotated_matrix(part, layer, None if mask_var is None else masks[name])
        sources[name] = replace(open_data(matrix), labels=labels)
    samples: Any = sources if several else sources[""]
    targets = {} if y is None else {"y": _column(data.obs, y, "obs") if isinstance(y, str) else y}
    joined = {"correspondence": by_observations(data)} if several else {}
    fitted.fit(samples, **targets, **joined, client=client, **options)
    key = type(model).__name__.lower() if key is None else key
    edges = {"graph": options["graph"]} if isinstance(model, GraphPPCA) and "graph" in options else {}
    data.obsm[f"X_{key}"] = np.asarray(fitted.transform(samples, client=client, **joined, **edges))
    result, last = model.result_, 0
    for name, part in parts.items() if "loadings" in result else ():
        first, last = last, last + sources[name].shape[1]
        loadings = np.full((len(part.var_names), result.sizes["component"]), np.nan)
        loadings[masks[name]] = result["loadings"].values[first:last]
        part.varm[f"{key}_loadings"] = loadings
    data.uns[key] = _told(model, layer, mask_var)
    return model


def _told(model: Any, layer: str | None, mask_var: Any) -> dict[str, Any]:
    """The entry of a fit in `uns`, as values that every format of AnnData holds."""
    names = ("explained_variance_", "explained_variance_ratio_", "noise_variance_", "log_likelihood_", "converged_")
    values = {name.rstrip("_"): copy(getattr(model, name)) for name in names if hasattr(model, name)}
    kept = {"layer": layer, "mask_var": mask_var if isinstance(mask_var, str) else None, **model.get_params()}
    return values | {
        "model": type(model).__name__,
        "params": {name: value for name, value in kept.items() if isinstance(value, bool | int | float | str)},
    }


def _mask(adata: Any, mask_var: Any) -> npt.NDArray[np.bool_]:
    values = _column(adata.var, mask_var, "var") if isinstance(mask_var, str) else mask_var
    names = AxisLabels(samples=np.asarray(adata.var_names, dtype=str))
    mask = refuse_mask(plain_rows(values, names, "truth values of mask_var"), "mask_var")
    if mask.dtype != bool or mask.shape != (len(adata.var_names),):
        raise DataError(
            f"mask_var has dtype {mask.dtype} and shape {mask.shape}; expected one truth value for each of the "
            f"{len(adata.var_names)} variables"
        )
    return mask


def _column(frame: Any, name: str, where: str) -> Any:
    if name not in frame.columns:
        raise DataError(f"{where} has no column {name!r}; it has {', '.join(map(str, frame.columns)) or 'none'}")
    return np.asarray(frame[name])
