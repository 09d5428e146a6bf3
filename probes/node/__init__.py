"""A live machine, read as evidence: one module for each thing that is read."""
