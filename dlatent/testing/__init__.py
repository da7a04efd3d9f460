"""For tests of models, and of code that uses them: the laws of an estimator, what scikit-learn's checks expect, and a
simulated cluster."""

from dlatent.testing.scikit import expected_failed_checks as expected_failed_checks
from dlatent.testing.simulation import DriverDied as DriverDied
from dlatent.testing.simulation import SimulatedCluster as SimulatedCluster
