"""For tests of models, and of code that uses them: the laws of an estimator, and what scikit-learn's checks expect."""

from dlatent.testing.scikit import expected_failed_checks as expected_failed_checks
