"""Checks of ACME's machines for topocheck."""
