"""From data to parameters: what is to be fitted, the plans, and each algorithm in a folder or file of its own."""
