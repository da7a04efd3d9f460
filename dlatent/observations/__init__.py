"""How entries are distributed given their linear predictors: a file for each distribution."""

from dlatent.observations.bernoulli import Bernoulli
from dlatent.observations.model import ObservationModel
from dlatent.observations.negative_binomial import NegativeBinomial
from dlatent.observations.poisson import Poisson
from dlatent.observations.student import Student
from dlatent.observations.student_rows import StudentRows

OBSERVATION_MODELS: dict[str, ObservationModel] = {
    model.name: model for model in (Student(), StudentRows(), Poisson(), Bernoulli(), NegativeBinomial())
}
"""By the value of `likelihood`; normal entries, which need none, have solvers of their own."""
