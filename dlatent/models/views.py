"""Models of several views of which samples may lack some: correspondences between data sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dlatent.arrays import Array, AxisLabels, Block, DataSource, Grid
from dlatent.engine.connect import Where
from dlatent.engine.records import PassRecord
from dlatent.engine.session import Session
from dlatent.errors import DataError
from dlatent.fitted.facts import Facts, component_facts, total_variance
from dlatent.fitted.grid import feature_words, grid_attributes, grid_variables, of_view, restored_grid
from dlatent.fitted.summary import INITIAL_MEAN
from dlatent.fitted.targets import EncodedTargets
from dlatent.fitting.outcome import Outcome
from dlatent.fitting.plan import Plan
from dlatent.fitting.task import Task
from dlatent.linear_gaussian.joint import MeanRequest, block_view_means
from dlatent.linear_gaussian.moments import count_empty_views, representable
from dlatent.linear_gaussian.specification import Specification, View
from dlatent.linear_gaussian.views import Arrangement
from dlatent.models.base import Fitted, Given
from dlatent.models.callbacks import Callback
from dlatent.models.correspondence_table import joined_rows
from dlatent.models.features import kind_of
from dlatent.models.inputs import Names, Pairing, PathLike, TargetsLike, Views
from dlatent.models.joint_views import pairing
from dlatent.models.task import far_shift
from dlatent.models.view_results import JointSamples, ViewResults, arrangement, opened
from dlatent.passes import Pass
from dlatent.stores.joint import JointSource, joint


class CorrespondenceModel(ViewResults):
    """The common part of the models of several views: opening, planning and fitting; see CorrespondencePPCA.

    Parameters
    ----------
    n_components : int, default 2
        K, the number of latent variables; less than the numbers of samples and of features of all views.
    solver : {"auto", "covariance", "krylov", "em"}, default "auto"
        "auto" takes the cheaper of "covariance" (one pass, numbers of the order of D² for each set of views that
        occurs) and "krylov" (about ten passes, D·K); "em" is textbook EM from random loadings.
    noise_floor : float, default 0.0
        Smallest noise variance of a view, as a part of the mean variance of its features; what is less than rounding
        counts as that.

    Attributes
    ----------
    view_names_ : tuple of str
        Names of the views.
    components_ : dict of ndarray of shape (n_components, n_features of the view)
        For each view W_vᵀ, loadings in units of its features.
    mean_ : dict of ndarray of shape (n_features of the view,)
        For each view μ_v.
    noise_variance_ : dict of float
        For each view σ_v², in squared units of its features.
    at_floor_ : dict of bool
        For each view, whether its noise variance is at its floor.
    view_samples_ : dict of int
        For each view the number of samples that have it.
    n_features_in_ : int
        Number of features of all views.
    feature_names_in_ : dict of ndarray
        For each view whose data had names, those of its features.
    """

    noise_variance_: dict[str, float | Array]
    at_floor_: dict[str, bool | npt.NDArray[np.bool_]]

    def _to_fit(self, views: Views, correspondence: Pairing, on: Names) -> JointSamples:
        """The joint samples of views to be fitted."""
        self._check_hyperparameters()
        data, sources = opened(views, on)
        if len(sources) < 2:
            raise DataError(f"there is {len(sources)} view; a correspondence is between two or more")
        table = joined_rows(pairing(views, correspondence, on), on, data, sources)
        rows, features = len(table), sum(own.shape[1] for own in sources.values())
        if self.n_components >= min(rows, features):
            raise DataError(
                f"n_components is {self.n_components}, but {rows} samples × {features} features of all views allow "
                f"at most {min(rows, features) - 1}; ask for fewer components"
            )
        return JointSamples(sources, table)

    def _given(self, samples: JointSamples, targets: EncodedTargets | None = None) -> Given:
        """Samples as the data of a fit."""
        names = self._feature_views(tuple(samples.sources))
        return Given(joint(*samples, refuse_zero_rows=names if self.zero_rows == "raise" else ()), targets)

    def _grids(self, source: DataSource) -> dict[str | None, Grid | None]:
        return {name: own.labels.grid for name, own in joint_source(source).views.items()}

    def _make_specification(self, given: Given) -> Specification:
        source = joint_source(given.source)
        noise = {"shared": self._shared, "fixed": self._noise_is_given}
        views = tuple(View(name, own.shape[1], **noise) for name, own in source.views.items())
        return Specification(views, source.patterns, int(self.n_components))

    def _variables(self, *, whole: bool) -> dict[str, Any]:
        names = self.view_names_
        sizes = self._specification.sizes[: len(names)]
        found = super()._variables(whole=whole) | {"feature_view": np.repeat(np.array(names), sizes)}
        grids = [self._view_labels[name].grid for name in names] if whole else []
        for number, grid in enumerate(grids):
            found |= grid_variables(grid, of_view(number)) if grid else {}
        own = [self._view_labels[name].features for name in names]
        if any(labels is not None for labels in own):
            texts = [np.arange(n) if x is None else x for x, n in zip(own, sizes, strict=True)]
            found["feature"] = np.concatenate([np.asarray(x).astype(str) for x in texts])
        return found

    def _attributes(self, *, whole: bool) -> dict[str, Any]:
        labels = [self._view_labels[name] for name in self.view_names_]
        more: dict[str, Any] = {
            "view_dims": [list(own.dims) for own in labels],
            "view_labels": [kind_of(own.features) for own in labels],
            "grids": [grid_attributes(own.grid) if own.grid else None for own in labels],
        }
        return super()._attributes(whole=whole) | (more if whole else {})

    def _component_facts(self) -> list[Facts]:
        names, sizes = list[str](), self._specification.sizes
        for view, width in zip(self.view_names_, sizes, strict=False):
            names += [f"{view} {name}" for name in feature_words(self._view_labels[view], width)]
        total = total_variance(self._fitted.outcome, self._specification, len(self.view_names_))
        return component_facts(self._parameters.loadings[self._own], names, total)

    def _restore(self, values: dict[str, Any], attributes: dict[str, Any]) -> None:
        super()._restore(values, attributes)
        self._view_labels = {}
        own = zip(
            self._specification.slices[: len(self.view_names_)],
            attributes["view_dims"],
            attributes["view_labels"],
            attributes.get("grids", [None] * len(self.view_names_)),
            strict=True,
        )
        for number, (name, (at, dims, kind, saved)) in enumerate(zip(self.view_names_, own, strict=True)):
            features = values["feature"][at].astype(kind) if kind else None
            grid = restored_grid(values, saved, of_view(number)) if saved else None
            self._view_labels[name] = AxisLabels((dims[0], dims[1]), None, features, grid=grid)

    def _more_of_problem(self, given: Given, specification: Specification) -> dict[str, Any]:
        source = joint_source(given.source)
        largest = max(block.nbytes for own in (source, *source.views.values()) for block in own.blocks)
        sizes, patterns = specification.sizes, specification.patterns
        return {"views": sizes, "present": patterns, "targets": 0, "largest_block": largest}

    def _more_of_task(self, session: Session, given: Given, specification: Specification) -> dict[str, Any]:
        return {"arrangement": self._arrangement(given.source)}

    def _arrangement(self, source: DataSource) -> Arrangement:
        """Which views the rows of a block have."""
        own = joint_source(source)
        return arrangement(own, tuple(range(len(own.views))), own.sizes)

    def _count(self, source: DataSource) -> Callable[[Block], int]:
        own, about = joint_source(source), self._arrangement(source)
        views = len(self._feature_views(tuple(own.views)))
        return partial(count_empty_views, arrangement=about, patterns=own.patterns, views=views)

    def _feature_views(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Those of the views that are features."""
        return names

    def _initial_mean(self, session: Session, *, observed: bool) -> Array:
        """The mean of each dense view over the first block that has it; of sparse ones that of the features that are
        far from zero, and zero for the others."""
        source = joint_source(session.source)
        request = MeanRequest(source.patterns, self._arrangement(source))
        bounds, blocks = np.cumsum([0, *source.sizes]), list[int]()
        for view in range(len(source.views)):
            pattern = next(p for p in reversed(range(len(source.patterns))) if view in source.patterns[p])
            blocks.append(next(at for at, b in enumerate(source.blocks) if b.start == source.bounds[pattern]))
        sparse = [block for block, own in zip(blocks, source.views.values(), strict=True) if own.sparse]
        shift = far_shift(session, sparse, tuple(request))
        for view, (own, block) in enumerate(zip(source.views.values(), blocks, strict=True)):
            if own.sparse:
                continue
            mean = session.run_block(Pass(block_view_means, request, cached=False, name=INITIAL_MEAN), block)
            at = slice(bounds[view], bounds[view + 1])
            shift[at] = representable(mean[at], own.dtype, sparse=False)
        return shift

    def plan(self, views: Views, *, correspondence: Pairing = None, on: Names = None, client: Where = None) -> Plan:
        """What `fit` would do and cost, from metadata and the correspondence alone."""
        return self._plan(self._given(self._to_fit(views, correspondence, on)), client)

    def fit(
        self,
        views: Views,
        y: TargetsLike = None,
        *,
        correspondence: Pairing = None,
        on: Names = None,
        client: Where = None,
        callbacks: Sequence[Callback] = (),
        checkpoint: PathLike | None = None,
        resume: bool = False,
    ) -> Self:
        """Fit the model to all samples: those of several views, and those that have only one.

        Raises
        ------
        DataError
            For views that cannot be fitted, naming view and row.
        PlanError
            Where no solver fits in memory; before data move.
        StoreError
            For a checkpoint of another fit, with what differs.
        """
        return self._fit(self._given(self._to_fit(views, correspondence, on)), client, callbacks, checkpoint, resume)

    def _keep(self, fitted: Fitted, task: Task, given: Given) -> None:
        sources = joint_source(given.source).views
        self._view_labels = {name: sources[name].labels for name in self._feature_views(tuple(sources))}
        super()._keep(fitted, task, given)

    def _publish(self, outcome: Outcome, passes: tuple[PassRecord, ...]) -> None:
        specification, parameters = outcome.specification, outcome.parameters
        self.view_names_ = self._feature_views(tuple(view.name for view in specification.views))
        own = dict(zip(self.view_names_, specification.slices, strict=False))
        noise = dict(zip(self.view_names_, specification.noise_slices, strict=False))
        self.components_ = {name: parameters.loadings[at].T for name, at in own.items()}
        self.mean_ = {name: parameters.mean[at] for name, at in own.items()}
        self.noise_variance_ = {name: self._by_view(parameters.noise_variance[at]) for name, at in noise.items()}
        self.at_floor_ = {name: self._by_view(np.array(outcome.at_floor)[at]) for name, at in noise.items()}
        self.view_samples_ = dict(zip(self.view_names_, outcome.view_samples, strict=False))
        self.n_features_in_ = sum(len(mean) for mean in self.mean_.values())
        self._publish_course(outcome, passes)

    def _by_view(self, values: npt.NDArray[Any]) -> Any:
        """One number of a view whose features share it, else an array."""
        return values[0].item() if self._shared else values


def joint_source(source: DataSource) -> JointSource:
    """The data of a fit, which are joint samples."""
    assert isinstance(source, JointSource)
    return source
