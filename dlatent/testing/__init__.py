"""For tests of the models and of code that uses them: simulators, dense oracles, and the laws of an estimator."""
