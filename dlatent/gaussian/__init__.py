"""The mathematics of the family: pure functions of arrays, no loops over data, no input or output."""
