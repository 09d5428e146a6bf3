"""Whose view a command's output is."""

from __future__ import annotations

import pytest

from topocheck.probes.capture.command_scope import scope_of
from topocheck.probes.capture.prompt import Section


@pytest.mark.parametrize(
    ("command", "scope"),
    [
        ("kubectl exec -it -n ml pod-a -c main -- ulimit -a", "container"),
        ("sudo /usr/bin/docker exec trainer df -h /dev/shm", "container"),
        ("oc exec pod-a -- ibv_devinfo", "container"),
        ("kubectl get pods", "unknown"),
        ("srun -w node1 ulimit -l", "unknown"),
        ("ssh node1 ulimit -l", "unknown"),
        ("ulimit -a", "unknown"),
        (None, "unknown"),
    ],
)
def test_only_what_ran_in_a_container_is_its_view(command: str | None, scope: str) -> None:
    assert scope_of(Section(1, 2, command)) == scope
