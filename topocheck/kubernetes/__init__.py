"""Manifests of Kubernetes: a gate in front of a job's containers, and what a manifest shows to be wrong."""
