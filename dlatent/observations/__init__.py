"""How entries are distributed given their linear predictors: a file for each distribution."""

from dlatent.observations.bernoulli import Bernoulli
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
