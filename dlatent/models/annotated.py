"""Results put into an AnnData or a MuData in place, as scanpy does."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from inspect import signature
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
import pandas as pd

from dlatent.arrays import AxisLabels, DataSource
from dlatent.containers import refuse_mask
from dlatent.engine.connect import Where
from dlatent.errors import DataError
from dlatent.models.aligned import plain_rows
from dlatent.models.beside import Beside, given
from dlatent.models.docstrings import described
from dlatent.models.inputs import Annotated, TargetsLike
from dlatent.models.joint_views import by_observations
from dlatent.models.mixture import PPCAMixture
from dlatent.models.model import Estimator
from dlatent.models.target_methods import targets_of
from dlatent.stores.open import open_annotated
from dlatent.stores.places import is_annotated, is_multimodal

Model = TypeVar("Model", bound=Any)
OF_SCANPY = "pca"
"""The key of `scanpy.pp.pca`, whose places have names of their own."""


@described
def annotate(
    adata: Annotated,
    model: Model,
    *,
    layer: str | None = None,
    mask_var: str | npt.ArrayLike | None = "auto",
    y: TargetsLike = None,
    key: str | None = None,
    client: Where = None,
    **options: object,
) -> Model:
    """Fit a model to an AnnData or a MuData and put the results into it, in place, as scanpy does.

    - `obsm["X_KEY"]`: scores (n_obs, K); `obs["KEY_level"]`: the level of each row, where rows have one, as counts do.
    - `varm["KEY_loadings"]`: loadings (n_vars, K) where the model has any; of a MuData in each modality.
    - `obs["KEY"]`: the class that a supervised model predicts, or the cluster of a mixture, categorical; or the number
      that is predicted.
    - `obsm["KEY_probabilities"]`: a data frame with the probability of each class, label or cluster.
    - `obsm["KEY_predictions"]`: a data frame, where several numbers are predicted.
    - `uns["KEY"]`: `variance`, `variance_ratio`, the likelihood and the hyperparameters.

    With `key="pca"` scores and variances are where `scanpy.pp.pca` has them, and `varm["PCs"]` are the loadings with
    length 1, so that all of scanpy that reads principal components goes on from there.  Scores are posterior means:
    those of component k are (λ_k − σ²)/λ_k times scanpy's projections, with its variance λ_k, which has the divisor N
    here and N − 1 there.

    Parameters
    ----------
    adata : AnnData or MuData
        In memory, backed by a file, or lazy; a backed one is read piece by piece.  The modalities of a MuData are
        views, which the names of observations join.
    model : estimator
        A model of samples × features, as `PPCA(20)`, of a MuData one of views, as `CorrespondencePPCA(20)`; it is
        fitted.
    layer : str, optional
        Name of the layer to be fitted, of each modality; by default `X`.  Methods of the fitted model take it of an
        AnnData or an h5ad file, too.
    mask_var : str or array of bool of shape (n_vars,) or None, default "auto"
        The variables to be fitted: a column of `var`, or booleans; None for all.  "auto" is the column
        "highly_variable" where there is one, as in scanpy, else all.  Loadings of the others are 0.
    y : str or array of shape (n_obs,), optional
        Targets, for models that take them: a column of `obs`, or an array.
    key : str, optional
        Part of the names; by default the name of the model in small letters, as "ppca".  What is in `uns` under it is
        replaced where `annotate`, or for "pca" scanpy, has put it there.
    **options : optional
        Other keywords of `fit`, as `graph="connectivities"`, the name of an entry of `obsp`.  `uncertainty` may be the
        name of a layer, `offset` that of a column of `obs`, and `covariates` one or a list of these.

    Returns
    -------
    estimator
        The fitted model.

    Raises
    ------
    DataError
        For names that the AnnData or MuData does not have, targets of a model that takes none, a key under which
        `uns` has something else or predictions would take the place of the targets, and as `fit`.

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
    key = type(model).__name__.lower() if key is None else key
    _check(adata, model, y, key, several=several)
    data, fitted = cast(Any, adata), cast(Any, model)
    parts, sources, masks = dict(data.mod) if several else {"": data}, dict[str, DataSource](), dict[str, Any]()
    for name, part in parts.items():
        masks[name] = _mask(part, mask_var)
        columns = None if masks[name] is None else np.flatnonzero(masks[name])
        sources[name] = open_annotated(part, layer, columns)
    samples: Any = sources if several else sources[""]
    targets = {} if y is None else {"y": _column(data.obs, y, "obs") if isinstance(y, str) else y}
    joined = {"correspondence": by_observations(data)} if several else {}
    beside = given({name: options.pop(name, None) for name in Beside.__annotations__})
    beside = beside if several else _beside(data, beside, masks)
    fitted.fit(samples, **targets, **joined, client=client, **beside, **options)
    filtered = "graph" in options and "graph" in signature(fitted.transform).parameters
    edges = {"graph": options["graph"]} if filtered else {}
    scores = np.asarray(fitted.transform(samples, client=client, **joined, **edges, **beside))
    if getattr(fitted._model, "row_effects", False):  # how much of a cell was read tells nothing of its kind
        scores, data.obs[f"{key}_level"] = scores[:, :-1], scores[:, -1]
    data.obsm[f"X_{key}"] = scores
    _put_loadings(fitted, parts, masks, key, scores.shape[1])
    if hasattr(fitted, "predict"):
        _put_predictions(fitted, data, key, samples, client=client, **joined)
    chosen = {name: column for name, part in parts.items() if isinstance(column := _chosen(part, mask_var), str)}
    data.uns[key] = _told(model, layer, chosen if several else chosen.get(""))
    return model


def _check(adata: Any, model: Any, y: Any, key: str, *, several: bool) -> None:
    """Refuse what cannot be annotated, and a key under which something else would be lost.  Errors: DataError."""
    if not several and not is_annotated(adata):
        raise DataError(f"annotate takes an AnnData or a MuData, not a {type(adata).__name__}")
    if isinstance(model, type) and issubclass(model, Estimator):
        raise DataError(f"annotate takes a model, not its class; pass {model.__name__}(…)")
    if not isinstance(model, Estimator):
        kind = type(model)
        raise DataError(f"annotate takes a model of dlatent, as PPCA(20), not a {kind.__module__}.{kind.__qualname__}")
    if several and "correspondence" not in signature(cast(Any, model).transform).parameters:
        raise DataError(
            f"{type(model).__name__} has no scores of several views; give a model that has, as CorrespondencePPCA(20), "
            "or one of the modalities, as mdata.mod[name]"
        )
    if y is not None and not hasattr(model, "target_type"):
        raise DataError(
            f"{type(model).__name__} takes no targets; leave out y, or give a model that does, as "
            f"{'Correspondence' if several else ''}SupervisedPPCA(20)"
        )
    if "/" in key:
        raise DataError(f"key is {key!r}; files take no names with '/', give another")
    there = adata.uns.get(key, {"model": None})
    if key != OF_SCANPY and not (isinstance(there, Mapping) and "model" in there):
        raise DataError(f"uns[{key!r}] is there, and annotate has not written it; give another key")
    if isinstance(y, str) and y == key:
        raise DataError(f"predictions would take the place of the targets in obs[{y!r}]; give another key")


def _beside(data: Any, values: dict[str, Any], masks: dict[str, Any]) -> dict[str, Any]:
    """What stands beside the entries, of layers and columns by their names, and of the variables that are fitted."""
    found = dict(values)
    for name in found.keys() & {"offset", "covariates"}:
        if isinstance(found[name], str):
            found[name] = _column(data.obs, found[name], "obs")
        elif isinstance(found[name], list) and all(isinstance(each, str) for each in found[name]):
            columns = {each: _column(data.obs, each, "obs") for each in found[name]}
            found[name] = pd.DataFrame(columns, index=data.obs_names)
    if isinstance(found.get("uncertainty"), str):
        mask = masks[""]
        at = None if mask is None else np.flatnonzero(mask)
        found["uncertainty"] = open_annotated(data, found["uncertainty"], at)
    return found


def _put_loadings(model: Any, parts: dict[str, Any], masks: dict[str, Any], key: str, components: int) -> None:
    """Put the loadings of a model, if it has any, into `varm` of each modality."""
    result = model.result_
    if "loadings" not in result:
        return
    values, name, last = result["loadings"].values[:, :components], f"{key}_loadings", 0
    if key == OF_SCANPY:
        lengths = np.linalg.norm(values, axis=0)
        values, name = values / np.where(lengths > 0.0, lengths, 1.0), "PCs"
    for part, mask in zip(parts.values(), masks.values(), strict=True):
        loadings = np.zeros((len(part.var_names), values.shape[1]))
        inside = slice(None) if mask is None else mask
        first, last = last, last + len(loadings[inside])
        loadings[inside] = values[first:last]
        part.varm[name] = loadings


def _put_predictions(model: Any, data: Any, key: str, samples: Any, **how: Any) -> None:
    """Put what a model predicts into `obs` and `obsm`: classes or clusters, of which probabilities are asked for, so
    that the data are read once, or numbers."""
    mixture, probable = isinstance(model, PPCAMixture), hasattr(model, "predict_proba")
    names = [*map(str, range(model.n_mixtures))] if mixture else targets_of(model).names
    values = np.asarray((model.predict_proba if probable else model.predict)(samples, **how))
    if values.ndim == 2:
        table = pd.DataFrame(values, index=data.obs_names, columns=[*map(str, names)])
        data.obsm[f"{key}_{'probabilities' if probable else 'predictions'}"] = table
    if not probable and values.ndim == 1:
        data.obs[key] = values
    elif mixture or targets_of(model).classes:
        data.obs[key] = pd.Categorical.from_codes(values.argmax(axis=1), categories=pd.Index(names))


def _told(model: Any, layer: str | None, mask_var: Any) -> dict[str, Any]:
    """The entry of a fit in `uns`, as values that every format of AnnData holds."""
    names = {"variance": "explained_variance_", "variance_ratio": "explained_variance_ratio_"}
    names |= {name: f"{name}_" for name in ("noise_variance", "log_likelihood", "converged")}
    values = {name: copy(getattr(model, attribute)) for name, attribute in names.items() if hasattr(model, attribute)}
    kept = {"layer": layer, "mask_var": mask_var, **model.get_params()}
    return values | {
        "model": type(model).__name__,
        "params": {name: value for name, value in kept.items() if isinstance(value, bool | int | float | str | dict)},
    }


def _chosen(adata: Any, mask_var: Any) -> Any:
    """The column of `var` that "auto" takes, None where there is none; all else as it is."""
    if isinstance(mask_var, str) and mask_var == "auto":
        return "highly_variable" if "highly_variable" in adata.var.columns else None
    return mask_var


def _mask(adata: Any, mask_var: Any) -> npt.NDArray[np.bool_] | None:
    mask_var = _chosen(adata, mask_var)
    if mask_var is None:
        return None
    values = _column(adata.var, mask_var, "var") if isinstance(mask_var, str) else mask_var
    names = AxisLabels(samples=np.asarray(adata.var_names, dtype=str))
    mask = refuse_mask(plain_rows(values, names, "truth values of mask_var"), "mask_var")
    if mask.dtype != bool or mask.shape != (len(adata.var_names),):
        raise DataError(
            f"mask_var has dtype {mask.dtype} and shape {mask.shape}; expected one truth value for each of the "
            f"{len(adata.var_names)} variables, or None for all of them"
        )
    if not mask.any():
        said = f"var[{mask_var!r}]" if isinstance(mask_var, str) else "mask_var"
        raise DataError(f"{said} is true of no variable; give another mask_var, or None for all of them")
    return mask


def _column(frame: Any, name: str, where: str) -> Any:
    if name not in frame.columns:
        raise DataError(f"{where} has no column {name!r}; it has {', '.join(map(str, frame.columns)) or 'none'}")
    return np.asarray(frame[name])
