"""Models of several views of which samples may lack some: what is to be fitted, and what comes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr

from dlatent.arrays import Array, AxisLabels, DataSource
from dlatent.engine.session import Session
from dlatent.errors import DataError
from dlatent.fitted.fit import INITIAL_MEAN
from dlatent.fitted.labels import ViewLabels
from dlatent.fitted.linear import JointGaussian, SharedNoise
from dlatent.fitted.target_values import as_array
from dlatent.fitted.targets import EncodedTargets
from dlatent.gaussian.head import JointRowsRequest, LabelledRows, block_labelled_joint
from dlatent.gaussian.likelihood import block_view_means
from dlatent.gaussian.moments import representable
from dlatent.gaussian.specification import Specification, View
from dlatent.gaussian.views import Arrangement, count_empty_views
from dlatent.models.features import KnownFeatures, view_feature_names
from dlatent.models.hyperparameters import SHARED, GraphSolver, choice, model, parameter
from dlatent.models.inputs import Names, Pairing, Views
from dlatent.models.joint_views import joined_rows, named, pairing, without_labels
from dlatent.models.map_rows import open_input
from dlatent.models.model import Model
from dlatent.models.table import table_fields, task_of
from dlatent.models.task import FitTask, far_shift
from dlatent.passes import Pass
from dlatent.solvers.solution import Solution
from dlatent.stores.joint import JointSource, Table, joint
from dlatent.stores.rows import open_made

TARGETS = "targets"
"""The name of the view that the encoded targets are."""


class JointSamples(NamedTuple):
    """The views of joint samples by name, and the rows of each that are theirs (samples, views), −1 where they lack
    one."""

    sources: dict[str, DataSource]
    table: Table


def arrangement(source: JointSource, numbers: Sequence[int], sizes: tuple[int, ...]) -> Arrangement:
    """How joint samples are arranged, for a model with views of these sizes that the source has as these numbers."""
    dense = [True] * len(sizes)
    for number, view in zip(numbers, source.views.values(), strict=True):
        dense[number] = not view.sparse
    return Arrangement(source.bounds, sizes, tuple(dense))


def opened(
    views: Views, on: Names, known: Mapping[str, AxisLabels] | None = None
) -> tuple[dict[str, Any], dict[str, DataSource]]:
    """The data of the views by name, and their sources; `known`, the labels of those that a model was fitted to."""
    data = named(views)
    sources: dict[str, DataSource] = {}
    for name, view in data.items():
        grid = known[name].grid if known and name in known else None
        # Of more than two dimensions that is one of samples whose labels the views share.
        several = isinstance(view, xr.DataArray) and view.ndim > 2 and not grid
        dim = on if several and isinstance(on, str) and on in view.dims else None
        try:
            sources[name] = open_input(without_labels(view, on), dim=dim, known=grid)[0]
        except DataError as error:
            raise type(error)(f"view {name!r}: {error}") from error
    return data, sources


def samples_to_fit(model: Model, views: Views, correspondence: Pairing, on: Names) -> JointSamples:
    """The joint samples of views to be fitted.  Errors: DataError."""
    model._check()
    data, sources = opened(views, on)
    if len(sources) < 2:
        raise DataError(f"there is {len(sources)} view; a correspondence is between two or more")
    table = joined_rows(pairing(views, correspondence, on), on, data, sources)
    rows, features, k = len(table), sum(source.shape[1] for source in sources.values()), int(model.n_components)
    if k >= min(rows, features):
        raise DataError(
            f"n_components is {k}, but {rows} samples × {features} features of all views allow at most "
            f"{min(rows, features) - 1}; ask for fewer components"
        )
    return JointSamples(sources, table)


def view_task(
    model: Model, samples: JointSamples, targets: EncodedTargets | None = None, *, shared: bool = True,
    fixed: bool = False,
) -> FitTask:  # fmt: skip
    """The task of a model of joint samples, whose last view are the targets where there are some.

    Parameters: `shared`, whether the features of a view share a noise variance; `fixed`, whether it is the floor.
    """
    names = [name for name in samples.sources if targets is None or name != TARGETS]
    source = joint(*samples, refuse_zero_rows=names if model.zero_rows == "raise" else ())
    views = tuple(View(name, view.shape[1], shared=shared, fixed=fixed) for name, view in source.views.items())
    specification = Specification(views, source.patterns, int(model.n_components))
    about, patterns = arrangement(source, range(len(views)), source.sizes), source.patterns
    largest = max(block.nbytes for view in (source, *source.views.values()) for block in view.blocks)
    task = task_of(model, source, specification, fitted_views)
    return replace(
        task,
        data=replace(task.data, largest_block=largest),
        targets=targets,
        arrangement=about,
        shift=initial_means,
        count=partial(count_empty_views, arrangement=about, patterns=patterns, views=len(names)),
        labelled=partial(labelled_pass, arrangement=about),
        grids={name: view.labels.grid for name, view in source.views.items()},
    )


def initial_means(session: Session, observed: bool) -> Array:
    """The mean of each dense view over the first block that has it; of sparse ones that of the features that are far
    from zero, and zero for the others."""
    source = joint_source(session.source)
    request = source.patterns, arrangement(source, range(len(source.views)), source.sizes)
    bounds, blocks = np.cumsum([0, *source.sizes]), list[int]()
    for view in range(len(source.views)):
        pattern = next(p for p in reversed(range(len(source.patterns))) if view in source.patterns[p])
        blocks.append(next(at for at, b in enumerate(source.blocks) if b.start == source.bounds[pattern]))
    sparse = [block for block, view_source in zip(blocks, source.views.values(), strict=True) if view_source.sparse]
    shift = far_shift(session, sparse, request)
    for view, (view_source, block) in enumerate(zip(source.views.values(), blocks, strict=True)):
        if view_source.sparse:
            continue
        mean = session.run_block(Pass(block_view_means, request, cached=False, name=INITIAL_MEAN), block)
        at = slice(bounds[view], bounds[view + 1])
        shift[at] = representable(mean[at], view_source.dtype, sparse=False)
    return shift


def labelled_pass(
    solution: Solution, part: float, sums: Any, arrangement: Arrangement
) -> Pass[Any, LabelledRows | None]:
    """The pass that finds what is known of z in a part of the samples with targets, and sums over all of them."""
    request = JointRowsRequest(solution.parameters, solution.specification, arrangement, part, sums)
    return Pass(block_labelled_joint, request)


def joint_source(source: DataSource) -> JointSource:
    """The data of a fit, which are joint samples."""
    assert isinstance(source, JointSource)
    return source


def fitted_views(task: FitTask, solution: Solution) -> JointGaussian:
    """The fitted model of several views."""
    sources = joint_source(task.source).views
    features = {name: source for name, source in sources.items() if task.targets is None or name != TARGETS}
    labels = {name: source.labels for name, source in features.items()}
    sizes = tuple(source.shape[1] for source in features.values())
    return JointGaussian(**table_fields(task, solution) | {"labels": ViewLabels(labels, sizes)})


def targets_of_samples(y: Any, samples: JointSamples) -> tuple[Any, AxisLabels, int, Table]:
    """Targets with the labels and the number of the rows that they are for, and which of these each sample is, −1 for
    none."""
    names, count = list(samples.sources), len(samples.table)
    if not isinstance(y, Mapping):
        y = None if y is None else as_array(y)
        if y is not None and len(y) != count:
            raise DataError(
                f"y has shape {y.shape}; there are {count} joint samples: those of the correspondence, then the "
                f"other rows of each view; for targets of the rows of one view give y={{{names[0]!r}: targets}}"
            )
        return y, AxisLabels(), count, np.arange(count)
    if len(y) != 1 or next(iter(y)) not in names:
        raise DataError(
            f"y has targets for {', '.join(map(repr, y)) or 'no view'}; as a mapping it has one entry, the targets of "
            f"the rows of one of the views {', '.join(map(repr, names))}; those of all joint samples are an array"
        )
    ((name, values),) = y.items()
    source = samples.sources[name]
    return values, source.labels, source.shape[0], samples.table[:, names.index(name)]


def with_target_view(
    samples: JointSamples, rows: Any, width: int, labelled: npt.NDArray[np.bool_], row_of_sample: Table
) -> JointSamples:
    """Samples that have targets beside their views: `rows` of this width, of which those are known that are `labelled`;
    each sample has the row that is its `row_of_sample`."""
    source = open_made(rows, (len(labelled), width), TARGETS)
    column = np.where((row_of_sample >= 0) & labelled[row_of_sample], row_of_sample, -1)
    return JointSamples({**samples.sources, TARGETS: source}, np.column_stack([samples.table, column]))


COMPONENTS = replace(
    SHARED["n_components"],
    text="K, the number of latent variables; less than the numbers of samples and of features of all views.",
)
SOLVER = choice(
    GraphSolver,
    'How the maximum is found.  "auto" takes the cheaper of "covariance" (one pass, numbers of the order of D² for '
    'each set of views that occurs) and "krylov" (about ten passes, D·K); "em" is textbook EM from random loadings.',
)
NOISE_FLOOR = replace(
    SHARED["noise_floor"],
    text="Smallest noise variance of a view, as a fraction of the mean variance of its features; what is less than "
    "rounding counts as that.",
)


@model
class JointModel(Model):
    """A model x_v = W_v z + μ_v + ε_v of several views v, of which samples may lack some."""

    n_components: int = parameter(COMPONENTS, default=2, kw_only=False)
    solver: str = parameter(SOLVER, default="auto")
    noise_floor: float = parameter(NOISE_FLOOR, default=0.0)

    @property
    def _model(self) -> JointGaussian:
        """The fitted model."""
        model = self._fitted().model
        assert isinstance(model, JointGaussian)
        return model

    def _number(self, view: str) -> int:
        """The number of a view.  Errors: DataError where there is none of this name."""
        if view not in self.view_names_:
            known = ", ".join(map(repr, self.view_names_))
            raise DataError(f"{view!r} is no view of the model; it was fitted to {known}")
        return self.view_names_.index(view)

    def _known_view(self, view: str) -> KnownFeatures:
        """What the model asks of new data of a view."""
        width, labels = self._model.view_sizes[self._number(view)], self._model.labels.views[view]
        place = self._fitted().place
        return KnownFeatures(type(self).__name__, width, labels.features, view, grid=labels.grid, place=place)

    def _by_view(self, values: npt.NDArray[Any]) -> dict[str, Any]:
        """Noise variances, or what is known of each, by view: one of all features, or an array."""
        cuts = zip(self.view_names_, self._model.specification.noise_slices, strict=False)
        shared = isinstance(self._model.noise, SharedNoise)
        return {name: values[at][0].item() if shared else values[at] for name, at in cuts}

    @property
    def n_components_(self) -> int:
        """int: K."""
        return len(self._model.component)

    @property
    def view_names_(self) -> tuple[str, ...]:
        """tuple of str: Names of the views."""
        return tuple(self._model.labels.views)

    @property
    def components_(self) -> dict[str, Array]:
        """dict of ndarray of shape (n_components, n_features of the view): For each view W_vᵀ, loadings in units of its
        features."""
        fitted = self._model
        cuts = zip(self.view_names_, fitted.specification.slices, strict=False)
        return {name: fitted.loadings[at].T for name, at in cuts}

    @property
    def mean_(self) -> dict[str, Array]:
        """dict of ndarray of shape (n_features of the view,): For each view μ_v."""
        fitted = self._model
        return {name: fitted.mean[at] for name, at in zip(self.view_names_, fitted.specification.slices, strict=False)}

    @property
    def noise_variance_(self) -> dict[str, float]:
        """dict of float: For each view σ_v², in squared units of its features."""
        return self._by_view(self._model.noise.variance)

    @property
    def at_floor_(self) -> dict[str, bool]:
        """dict of bool: For each view, whether its noise variance is at its floor."""
        return self._by_view(self._model.noise.at_floor)

    @property
    def view_samples_(self) -> dict[str, int]:
        """dict of int: For each view the number of samples that have it."""
        return dict(zip(self.view_names_, self._model.view_samples.tolist(), strict=False))

    @property
    def n_features_in_(self) -> int:
        """int: Number of features of all views."""
        return len(self._model.mean)

    @property
    def feature_names_in_(self) -> dict[str, npt.NDArray[np.object_]]:
        """dict of ndarray: For each view whose data had names, those of its features."""
        views = self._model.labels.views.items()
        return view_feature_names(self, {name: labels.features for name, labels in views})
