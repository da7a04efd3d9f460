"""How entries are distributed given their linear predictors: a file for each distribution."""

from typing import TypeAlias

from dlatent.observations.bernoulli import Bernoulli
from dlatent.observations.by_view import ByView
from dlatent.observations.model import ObservationModel
from dlatent.observations.negative_binomial import NegativeBinomial
from dlatent.observations.normal import Normal
from dlatent.observations.poisson import Poisson
from dlatent.observations.student import Student
from dlatent.observations.student_rows import StudentRows

OBSERVATION_MODELS: dict[str, ObservationModel] = {
    model.name: model for model in (Normal(), Student(), StudentRows(), Poisson(), Bernoulli(), NegativeBinomial())
}
"""By the value of `likelihood`; normal entries with nothing beside them have solvers of their own."""
Likelihoods: TypeAlias = "str | tuple[tuple[str, int], ...]"
"""The name of a distribution, or those of several views with the numbers of their features."""


def observation_model(likelihood: Likelihoods) -> ObservationModel:
    """The distribution of all entries, or of those of each view."""
    if isinstance(likelihood, str):
        return OBSERVATION_MODELS[likelihood]
    names, sizes = zip(*likelihood, strict=True)
    if set(names) == {Normal.name}:
        return OBSERVATION_MODELS[Normal.name]
    return ByView(tuple(OBSERVATION_MODELS[name] for name in names), sizes)
