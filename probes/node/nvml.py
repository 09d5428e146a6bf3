"""The GPUs of this machine, by NVML.

`python -m topocheck.probes.node.nvml` reads them in a process of its own, since a call into a broken
driver may never return and cannot be cancelled. For the process that starts it:

- stdout has one JSON document (GpuReading) a line, each of which replaces the one before it; the last
  whole line is what is known. A document follows each GPU, so that one that hangs hides little.
- stderr has one line for each call, written before it is made: `call nvmlDeviceGetUUID(GPU 3)`. If the
  process has to be killed, the last such line is the call that did not return. Both pipes must be
  drained all the time.
- It ends with exit code 0 once the reading is complete, whatever faults it holds.

Options: `--root PATH`, the file tree of the machine; `--library NAME`, the NVML library to load;
`--identity`, to ask only which GPUs there are and of which model.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from msgspec.structs import replace

from topocheck.probes.node.nvml_calls import Code, Driver, Gpu, load_driver
from topocheck.probes.node.nvml_fabric import merge_fabrics, read_fabric
from topocheck.probes.node.nvml_identity import find_gpus, read_id, read_scope
from topocheck.probes.node.nvml_links import read_links
from topocheck.probes.node.nvml_p2p import far_ends_known, read_matrix, read_peers
from topocheck.probes.node.nvml_shape import read_shape
from topocheck.probes.node.nvml_state import read_memory, read_state
from topocheck.probes.node.roots import Roots
from topocheck.snapshot import (
    Coverage,
    Fabric,
    GpuId,
    GpuShape,
    GpuState,
    LinkMatrix,
    PeerAccess,
    ProbeFault,
    Software,
)

__all__ = ["GpuReading", "main", "read_gpus"]


class GpuReading(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What NVML said about the GPUs of a machine."""

    ids: tuple[GpuId, ...] = ()
    """GPUs that this process may open, in NVML's order."""
    shapes: tuple[GpuShape, ...] = ()
    """The same GPUs; one that could not be read shows nothing."""
    matrix: LinkMatrix | None = None
    """Classes of their pairs."""
    peers: tuple[PeerAccess, ...] = ()
    """Peer access of their pairs."""
    fabric: tuple[Fabric, ...] = ()
    """NVLink fabric; GPUs without one are in no entry."""
    states: tuple[GpuState, ...] = ()
    """What changes by itself."""
    software: Software = Software()
    """Driver, CUDA and NVML versions."""
    faults: tuple[ProbeFault, ...] = ()
    """What could not be read."""
    coverage: Coverage = Coverage()
    """gpus: all, unless one is denied or dead. links: all, unless a link, a far end or a GPU is unknown."""


def nothing(_: object) -> None:
    """Nobody listens."""


def read_gpus(
    roots: Roots,
    *,
    announce: Callable[[str], None] = nothing,
    publish: Callable[[GpuReading], None] = nothing,
    identity: bool = False,
) -> GpuReading:
    """Ask NVML everything that it knows; never raises for what NVML or a GPU does.

    `announce` is told of each call before it is made, `publish` is given what is known after each GPU
    and at the end. `identity` asks only which GPUs there are and of which model: enough for one of many
    processes of a node.
    """
    driver = load_driver(roots.nvml, announce)
    if isinstance(driver, ProbeFault):
        reading = GpuReading(faults=(driver,))
        publish(reading)
        return reading
    survey = _Survey(driver, publish)
    survey.identify(roots.sys)
    if identity:
        survey.name()
    else:
        survey.examine()
        survey.compare()
    driver.ask("software", "nvmlShutdown")
    return survey.reading()


@dataclass(slots=True)
class _Survey:
    """The reading as far as it has come."""

    driver: Driver
    publish: Callable[[GpuReading], None]
    gpus: list[Gpu] = field(default_factory=list)
    whole: bool | None = None
    software: Software = field(default_factory=Software)
    migs: list[list[int] | None] = field(default_factory=list)
    """MIG mode now and after a reset, by ordinal."""
    ids: list[GpuId] = field(default_factory=list)
    shapes: list[GpuShape] = field(default_factory=list)
    fabrics: list[Fabric] = field(default_factory=list)
    states: list[GpuState] = field(default_factory=list)
    peers: tuple[PeerAccess, ...] = ()
    matrix: LinkMatrix | None = None

    def identify(self, sys_root: Path) -> None:
        """Which GPUs there are."""
        self.software = read_software(self.driver)
        self.gpus, self.whole = find_gpus(self.driver)
        scope = read_scope(sys_root, len(self.gpus))
        for gpu in self.gpus:
            mode = self.driver.ask("gpus", "nvmlDeviceGetMigMode", gpu)
            self.migs.append(mode.value)
            off = False if mode.code == Code.NOT_SUPPORTED else None
            self.ids.append(read_id(self.driver, gpu, scope, mig=mode.value[0] == 1 if mode.value else off))
            self.publish(self.reading())

    def name(self) -> None:
        """Of which model each GPU is, and whether it is in MIG mode."""
        for gpu, mode in zip(self.gpus, self.migs, strict=True):
            model = self.driver.ask("gpus", "nvmlDeviceGetName", gpu).value
            self.shapes.append(GpuShape(model=model, mig=None if mode is None else mode[0] == 1))
        self.publish(self.reading())

    def examine(self) -> None:
        """What each GPU is like, and how it is."""
        ordinals = {gpu.bus: ordinal for ordinal, gpu in enumerate(self.ids) if gpu.bus is not None}
        for ordinal, (gpu, mode) in enumerate(zip(self.gpus, self.migs, strict=True)):
            mig = None if mode is None else mode[0] == 1
            memory = read_memory(self.driver, gpu)
            links = read_links(self.driver, gpu, ordinals, mig=mig is True)
            self.shapes.append(read_shape(self.driver, gpu, memory.total_bytes, links, mig=mig))
            fabric = read_fabric(self.driver, gpu, ordinal)
            self.fabrics += [] if fabric is None else [fabric]
            rates = links.megabytes_per_s
            self.states.append(read_state(self.driver, gpu, ordinal, memory, mig=mode, rates=rates))
            self.publish(self.reading())

    def compare(self) -> None:
        """How the GPUs reach each other."""
        self.matrix = read_matrix(self.driver, self.gpus, self.shapes)
        self.peers = read_peers(self.driver, self.gpus, [shape.model for shape in self.shapes])
        self.publish(self.reading())

    def reading(self) -> GpuReading:
        """What is known now."""
        unread = [GpuShape()] * (len(self.ids) - len(self.shapes))
        return GpuReading(
            ids=tuple(self.ids),
            shapes=(*self.shapes, *unread),
            matrix=self.matrix,
            peers=self.peers,
            fabric=merge_fabrics(self.fabrics),
            states=tuple(self.states),
            software=self.software,
            faults=self.driver.faults(),
            coverage=self.coverage(),
        )

    def coverage(self) -> Coverage:
        """From what absence may be concluded."""
        if self.whole is None:
            return Coverage()
        named = all(gpu.uuid or gpu.bus for gpu in self.ids) and len(self.ids) == len(self.gpus)
        linked = len(self.shapes) == len(self.gpus) and all(map(far_ends_known, self.shapes))
        return Coverage(
            gpus="all" if self.whole and named else "part",
            links="all" if linked else "part",
        )


def read_software(driver: Driver) -> Software:
    """Versions of driver, CUDA (13000 is 13.0) and NVML."""
    cuda = driver.ask("software", "nvmlSystemGetCudaDriverVersion_v2").value
    return Software(
        driver=driver.ask("software", "nvmlSystemGetDriverVersion").value,
        cuda=None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
        nvml=driver.ask("software", "nvmlSystemGetNVMLVersion").value,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the GPUs and write them as the module says."""
    parser = argparse.ArgumentParser(
        prog="python -m topocheck.probes.node.nvml", description="Read GPUs by NVML."
    )
    parser.add_argument("--root", type=Path, default=Path("/"), help="file tree of the machine")
    parser.add_argument("--library", help="NVML library to load")
    parser.add_argument("--identity", action="store_true", help="only which GPUs there are")
    options = parser.parse_args(arguments)
    roots = Roots.at(options.root)
    roots = roots if options.library is None else replace(roots, nvml=options.library)
    read_gpus(roots, announce=_announce, publish=_publish, identity=options.identity)
    return 0


def _announce(call: str) -> None:
    sys.stderr.write(f"call {call}\n")
    sys.stderr.flush()


def _publish(reading: GpuReading) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(reading) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(main())
