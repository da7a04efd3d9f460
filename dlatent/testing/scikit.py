"""What the checks of scikit-learn's `sklearn.utils.estimator_checks` ask for that a model does not do, and why."""

from __future__ import annotations

from typing import Any

from sklearn.utils.validation import has_fit_parameter

from dlatent.models.local_linear import LocallyLinearEmbedding
from dlatent.models.mixture import PPCAMixture

NO_CLASSIFIER = "predict_proba has a column for each component of the mixture, and none for each class"
NO_LABEL = "-1 stands for no label, so that of the labels -1 and 1 one class is left"
COLUMN = "a column of labels is taken for labels without a warning"
OUTSIDE = "rows of the fit are placed by their neighbours, as others are, so that a ridge moves them by a thousandth"
APART = "the checks' clusters are an error, as their graph of neighbours falls apart; disconnected='keep' embeds them"
NO_WEIGHTS = "iterations over rows with missing entries, or with entries that are not normal, know no weights"
WEIGHTS = (
    *(f"check_sample_weights_{name}" for name in ("pandas_series", "not_an_array", "list", "shape", "not_overwritten")),
    "check_all_zero_sample_weights_error",
    "check_sample_weight_equivalence_on_dense_data",
)
SPARSE_WEIGHTS = ("check_sample_weight_equivalence_on_sparse_data",)
PLACED = ("check_transformer_general", "check_transformer_data_not_an_array")
CLUSTERS = (
    "check_positive_only_tag_during_fit",
    "check_pipeline_consistency",
    "check_estimator_sparse_tag",
    "check_estimator_sparse_array",
    "check_estimator_sparse_matrix",
    "check_estimators_pickle",
    "check_transformer_preserve_dtypes",
)


def expected_failed_checks(estimator: Any) -> dict[str, str]:
    """Return the checks of scikit-learn that an estimator fails, by name, with the reason.

    Parameters
    ----------
    estimator : estimator
        A model of dlatent, or of a class that inherits from one.

    Returns
    -------
    dict of str
        What `check_estimator` and `parametrize_with_checks` of scikit-learn take as `expected_failed_checks`.

    Examples
    --------
    >>> from dlatent import PPCA, PPCAMixture
    >>> from dlatent.testing import expected_failed_checks
    >>> expected_failed_checks(PPCA())
    {}
    >>> sorted(expected_failed_checks(PPCAMixture()))
    ['check_estimator_sparse_array', 'check_estimator_sparse_matrix']

    All checks of a model are run by ``check_estimator(model, expected_failed_checks=expected_failed_checks(model))``.
    """
    expected = dict[str, str]()
    observed = getattr(estimator, "likelihood", "normal") != "normal"
    by_rows = observed or getattr(estimator, "missing", "raise") != "raise"
    if by_rows and has_fit_parameter(estimator, "sample_weight"):
        expected |= dict.fromkeys((*WEIGHTS, *(SPARSE_WEIGHTS if observed else ())), NO_WEIGHTS)
    if getattr(estimator, "target_type", None) == "class":
        expected |= {"check_classifiers_classes": NO_LABEL, "check_supervised_y_2d": COLUMN}
    if isinstance(estimator, PPCAMixture):
        expected |= dict.fromkeys(("check_estimator_sparse_array", "check_estimator_sparse_matrix"), NO_CLASSIFIER)
    if isinstance(estimator, LocallyLinearEmbedding):
        expected |= dict.fromkeys(PLACED, OUTSIDE)
        if estimator.disconnected == "raise":
            expected |= dict.fromkeys((*PLACED, *CLUSTERS), APART)
    return expected
