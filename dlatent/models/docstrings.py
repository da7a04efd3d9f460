"""Docstrings without repetition: what a class or a method does not describe, it takes from where it is described.

A section of a docstring has the form of numpydoc.  A parameter that means the same in many methods is described in
`SHARED`, what all methods of one name have in common in `METHODS`; a hyperparameter or a fitted attribute with the
class that brings it.  What a docstring says itself goes first.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping
from inspect import cleandoc, getattr_static, isfunction, signature, unwrap
from types import FunctionType
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
SECTIONS = ("Parameters", "Attributes", "Returns", "Raises", "Warns", "See Also", "Notes", "References", "Examples")
HEADING = re.compile(rf"^({'|'.join(SECTIONS)})\n-+\n", flags=re.MULTILINE)


def parsed(text: str) -> dict[str, str]:
    """The sections of a docstring by their titles; what stands before them has none."""
    first, *rest = HEADING.split(cleandoc(text))
    return {"": first.strip()} | {title: body.strip("\n") for title, body in zip(rest[::2], rest[1::2], strict=True)}


def entries(section: str) -> dict[str, str]:
    """The entries of a section by their names; several names may share one."""
    by_name = dict[str, str]()
    for entry in re.split(r"\n+(?=\S)", section):
        names = entry.partition("\n")[0].partition(" :")[0]
        by_name |= {name.strip(" *"): entry for name in names.split(",")} if entry else {}
    return by_name


def first_sentence(text: str) -> str:
    """The first sentence of a description, as the command line shows it."""
    first = re.split(r"\.\s+(?=[A-Z])", text)[0].rstrip(".").replace("`", "")
    return first if first[1:2].isupper() or first[1:2] in (",", "-") else first[0].lower() + first[1:]


def written(sections: Mapping[str, str]) -> str:
    """A docstring of these sections, in their order."""
    titles = (title for title in SECTIONS if sections.get(title))
    return "\n\n".join([sections[""], *(f"{t}\n{'-' * len(t)}\n{sections[t]}" for t in titles)]) + "\n"


def described(function: F) -> F:
    """Return the function or class with a docstring of its parameters, and of results and errors where it has none."""
    if function.__doc__:
        common = METHODS.get(function.__name__, {})
        sections = {**common, **parsed(function.__doc__)}
        known = SHARED | entries(common.get("Parameters", "")) | entries(sections.get("Parameters", ""))
        names = (name for name in signature(function).parameters if name in known)
        sections["Parameters"] = "\n".join(dict.fromkeys(known[name] for name in names))
        errors = entries(common.get("Raises", "")) | entries(sections.get("Raises", ""))
        sections["Raises"] = "\n".join(dict.fromkeys(errors.values()))
        function.__doc__ = written(sections)
    return function


def name_methods(cls: Any) -> None:
    """Give a public class all of its methods under its own name, completely described: Python names a function in the
    errors of a wrong call, and a user knows `PPCA.fit`, not the file or base that has it."""
    for name in dir(cls):
        method = getattr_static(cls, name)
        conditional = hasattr(method, "fn")  # scikit-learn's available_if
        function = unwrap(method.fn if conditional else method) if conditional or isfunction(method) else None
        public = not name.startswith("_")
        if not isfunction(function) or not public or not function.__module__.startswith("dlatent."):
            continue
        copied = FunctionType(
            function.__code__, function.__globals__, name, function.__defaults__, function.__closure__
        )
        copied.__kwdefaults__, copied.__doc__ = function.__kwdefaults__, function.__doc__
        copied.__annotations__, copied.__dict__ = function.__annotations__, dict(function.__dict__)
        copied.__module__, copied.__qualname__ = cls.__module__, f"{cls.__qualname__}.{name}"
        if conditional:
            method = copy.copy(method)
            method.fn = copied
        described(copied)
        setattr(cls, name, method if conditional else copied)


SHARED = entries(
    cleandoc("""
    X : array, data frame, Zarr array, path or URL, of shape (n_samples, n_features)
        The data, of any kind that `dlatent.open_data` takes: numpy, scipy.sparse, Dask, xarray, pandas, polars,
        AnnData, Zarr, or the place of a Zarr store.
    y : optional
        Ignored; scikit-learn's tools pass it.
    Z : array or xarray.DataArray of shape (n_samples, n_components)
        Scores, as `transform` gives them.  Of a DataArray with the labels of some components, as
        `scores.sel(component=[0, 1])`, the others are 0.
    views : mapping, list, xarray.Dataset or JointViews
        The data of each view, by name or in order, each of shape (n_samples of the view, n_features of the view) and of
        any kind that `dlatent.open_data` takes.  The variables of a Dataset are views.  A view with more than
        two dimensions has its samples along the dimension `on`.  `JointViews` bring their correspondence along.
    correspondence : array, data frame, xarray.DataArray or "rows", optional
        Which rows are one sample: pairs of rows (m, 2) of two views, or a table (m, n_views) with a row of each view,
        −1 where the sample lacks it.  Rows that do not occur are samples of one view.  "rows": row i of each view is
        of sample i.
    on : str or mapping, optional
        Instead of `correspondence`: the name of labels that the views share (an xarray coordinate, an index or a
        column), or the labels of each view.
    graph : sparse matrix, networkx graph, path or URL
        Edges between the samples, what `dlatent.open_graph` takes or returns: a symmetric sparse
        adjacency matrix (n_samples, n_samples), a Zarr store of one, a networkx graph.
    precision : sparse matrix, Dask array, path or URL, optional
        Instead of `graph` the precision matrix Δ (n_samples, n_samples) between the samples, symmetric and positive
        semi-definite, what `dlatent.open_precision` takes or returns; without alpha and gamma.
    labelled : array of bool of shape (n_samples,), optional
        Which rows have targets; another way to say it than by NaN, None or −1 in `y`.
    sample_weight : array of shape (n_samples,), optional
        How often each sample counts: whole numbers are the same as repeated rows, 0 leaves a sample out.  By default
        once.
    **beside : uncertainty, offset, covariates
        What stands beside the entries, of any kind that the data may be, in the same order.  `uncertainty`, for normal
        entries, is the standard deviation of each (n_samples, n_features), or of all; 0 is exact, and NaN or infinity a
        missing entry.  `offset` (n_samples,) or (n_samples, n_features) is added to the predictors Wz + μ, as the
        logarithm of an exposure of counts is.  `covariates` (n_samples, n_covariates) are numbers of each sample, whose
        effects on the features the model finds.  What a fit had, methods ask of new samples, too; their
        results are then in memory, those of a Dask array as well.
    dim : str or sequence of str, optional
        Of xarray data with any number of dimensions the one that the samples lie along, or several, as ("member",
        "time").  All cells of the others are features, but for those without a value in any sample.
    weights : xarray.DataArray or "coslat", optional
        Weights of the features, over some of the dimensions beside `dim`; "coslat" is the cosine of their latitude.
        The model sees features times the square root of their weight; results are given without.
    client : distributed.Client or "serial", optional
        Where to compute.  By default on the active client, else on the threads of this process; "serial" is one task
        after the other.
    callbacks : sequence of Callback, optional
        Hear how the fit goes on.
    checkpoint : path, URL or store of Zarr, optional
        Directory that gets the result of every pass.  It stays until you remove it.
    resume : bool, default False
        Go on from where an interrupted call with the same arguments has stopped.  The result is the same to the last
        bit.
    out : path, URL or store of Zarr, optional
        A Zarr store to write the result to, instead of memory.
    overwrite : bool, default False
        Replace the store `out` if there is one.
    n_samples : int, default 1
        How many to draw.
    random_state : int or numpy.random.Generator, optional
        Seed; by default every call draws anew.
    return_variance : bool, default False
        Return the variance, too.
    """)
)

FITTED = parsed("""
    Raises
    ------
    NotFittedError
        Before `fit`.
""")
OF_DATA = parsed("""
    Raises
    ------
    NotFittedError
        Before `fit`.
    DataError
        For data of other features, or with another order of them; for targets or views that the model does not know;
        and for NaN or infinity, by row and column (of a lazy result when it is computed).
""")
METHODS = {
    **dict.fromkeys(("embedding_of", "get_covariance", "get_precision", "predictive_variance", "rotated"), FITTED),
    **dict.fromkeys(("reconstruct", "inverse_transform", "log_likelihood"), OF_DATA),
    "plan": parsed("""
    Parameters
    ----------
    client : distributed.Client, Workers or "serial", optional
        Where the fit would run, as in `fit`; also on `Workers` that are not there yet.

    Returns
    -------
    Plan
        `str(plan)` is a page to read.

    Raises
    ------
    PlanError
        Where no solver fits in memory; the text says how to fix it.
    DataError
        As in `fit`.
    """),
    "fit": parsed("""
    Returns
    -------
    self
        The fitted model.

    Raises
    ------
    DataError
        For data that cannot be fitted, naming row, column and block.
    PlanError
        Where no solver fits in memory; before data move.
    StoreError
        For a checkpoint of another fit, with what differs.

    Warns
    -----
    ConvergenceWarning, NoiseFloorWarning, PrecisionWarning, DataWarning, MisfitWarning
        Where the result is not what it seems; the text says what to do.
    """),
    **dict.fromkeys(
        (
            "transform",
            "posterior",
            "score_samples",
            "score",
            "predict",
            "predict_proba",
            "decision_function",
            "impute",
            "impute_variance",
        ),
        FITTED
        | parsed("""
    Parameters
    ----------
    y : array of shape (n_samples,) or (n_samples, n_targets), optional
        Targets as in `fit`, of models that have some.  Of samples without, and without `y`, the features alone count.
    views : mapping from names to data
        One view of the model, or several with `correspondence` or `on` as in `fit`.
    """),
    ),
}
"""Sections of the docstrings of all methods of a name."""
