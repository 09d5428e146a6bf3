"""Arithmetic of pipelines: what they give and why their stages wait, under stated assumptions."""
