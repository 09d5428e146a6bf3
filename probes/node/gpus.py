"""The node's GPUs as all that can list them says together: NVML, AMD's kernel driver, the PCI tree."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from topocheck.probes.node.roots import NVML_LIBRARY
from topocheck.snapshot import (
    Coverage,
    Extent,
    Fabric,
    GpuId,
    GpuShape,
    GpuState,
    LinkMatrix,
    PeerAccess,
    ProbeFault,
    Software,
)

if TYPE_CHECKING:
    from topocheck.probes.node.amd import AmdGpus
    from topocheck.probes.node.nvml import GpuReading
    from topocheck.probes.node.pci import PciTree

__all__ = ["NodeGpus", "join_gpus"]

NO_VERSIONS, NOTHING_KNOWN = Software(), Coverage()


class NodeGpus(msgspec.Struct, frozen=True, gc=False):
    """GPUs by ordinal, and what is known of them."""

    ids: tuple[GpuId, ...] = ()
    """For `identity.gpus`."""
    shapes: tuple[GpuShape, ...] = ()
    """For `hardware.gpus`."""
    matrix: LinkMatrix | None = None
    """For `hardware.matrix`."""
    peers: tuple[PeerAccess, ...] = ()
    """For `hardware.peers`."""
    fabric: tuple[Fabric, ...] = ()
    """For `fabric`."""
    states: tuple[GpuState, ...] = ()
    """For `state.gpus`."""
    software: Software = NO_VERSIONS
    """Versions that NVML tells."""
    coverage: Coverage = NOTHING_KNOWN
    """Of GPUs and links alone."""
    faults: tuple[ProbeFault, ...] = ()
    """What could not be read."""
    amd: bool = False
    """They are AMD's."""

    @property
    def listed(self) -> Sequence[GpuId] | None:
        """Names and models, to tell devices apart by; None if nobody could list GPUs."""
        if self.coverage.gpus is None:
            return None
        return [replace(gpu, model=shape.model) for gpu, shape in zip(self.ids, self.shapes, strict=True)]

    @property
    def sliced(self) -> Collection[int]:
        """Ordinals of GPUs in MIG mode."""
        return [ordinal for ordinal, shape in enumerate(self.shapes) if shape.mig]


def join_gpus(
    nvml: GpuReading | None,
    amd: AmdGpus | None,
    tree: PciTree | None,
    faults: Sequence[ProbeFault],
    *,
    identity: bool,
) -> NodeGpus:
    """GPUs with their places in the PCI tree.

    Processors with graphics are GPUs to AMD's driver: beside NVIDIA's GPUs they are none of the job's and
    are left out, which is told. `identity` says that only identities were asked for.
    """
    others = 0 if amd is None else len(amd.ids)
    if nvml is not None and (nvml.ids or not others):
        found = of_nvidia(nvml, tree, identity=identity)
        return replace(found, faults=(*faults, *left_out(others)))
    if amd is None or not others:
        return NodeGpus(faults=tuple(faults))
    # NVIDIA's driver is not missed where the GPUs are AMD's.
    missed = tuple(fault for fault in faults if fault.path != NVML_LIBRARY or fault.kind != "absent")
    return replace(of_amd(amd, identity=identity), faults=missed)


def of_nvidia(nvml: GpuReading, tree: PciTree | None, *, identity: bool) -> NodeGpus:
    """What NVML says, with each GPU's place in the tree and the NUMA node that its PCI function names."""
    coverage = Coverage(gpus=nvml.coverage.gpus, links=None if identity else nvml.coverage.links)
    return NodeGpus(
        ids=nvml.ids,
        shapes=tuple(placed(gpu, shape, tree) for gpu, shape in zip(nvml.ids, nvml.shapes, strict=True)),
        matrix=nvml.matrix,
        peers=nvml.peers,
        fabric=nvml.fabric,
        states=nvml.states,
        software=nvml.software,
        coverage=coverage,
    )


def placed(gpu: GpuId, shape: GpuShape, tree: PciTree | None) -> GpuShape:
    """The shape of a GPU where the tree shows it."""
    if tree is None or gpu.bus is None:
        return shape
    function = tree.functions.get(gpu.bus)
    numa = shape.numa if shape.numa is not None or function is None else function.numa
    return replace(shape, pci=tree.places.get(gpu.bus), numa=numa)


def of_amd(amd: AmdGpus, *, identity: bool) -> NodeGpus:
    """What AMD's driver says. Links are known where the driver listed those of every GPU."""
    linked = amd.whole and all(shape.links is not None for shape in amd.shapes)
    links: Extent = "all" if linked else "part"
    return NodeGpus(
        ids=amd.ids,
        shapes=amd.shapes,
        coverage=Coverage(gpus="all" if amd.whole else "part", links=None if identity else links),
        amd=True,
    )


def left_out(others: int) -> tuple[ProbeFault, ...]:
    """AMD's GPUs beside NVIDIA's."""
    if not others:
        return ()
    reason = f"{others} of AMD's beside NVIDIA's: left out, as processors with graphics mostly are"
    return (ProbeFault(part="gpus", kind="not-supported", path="class/kfd/kfd/topology", reason=reason),)
