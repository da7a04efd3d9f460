"""The methods that are compared: one function each, which runs in a process of its own."""
