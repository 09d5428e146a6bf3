"""Versions in force, without importing or loading anything.

The kernel driver tells its own. Python packages are known by the names of their metadata folders
(`torch-2.8.0+cu128.dist-info`), libraries by their file names (`libnccl.so.2.27.5`).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping

from topocheck.probes.node.hypervisor import read_hypervisor
from topocheck.probes.node.libraries import find_libraries, library_folders
from topocheck.probes.node.reader import MISSING, Reader, printable
from topocheck.probes.node.roots import Roots
from topocheck.snapshot import ProbeFault, Software

__all__ = ["package_folders", "parse_driver", "parse_metadata_name", "read_software"]

NVRM = re.compile(
    r"^NVRM version:.*?(Open )?Kernel Module.*?\s([0-9]{1,4}(?:\.[0-9]{1,4}){1,2})\s", re.MULTILINE
)
"""`NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build`."""

METADATA = re.compile(
    r"([A-Za-z0-9][A-Za-z0-9._]*)-([0-9][A-Za-z0-9.+!_]*)(?:-py[0-9.]+)?\.(?:dist|egg)-info"
)
"""Name and version of a distribution; blanks and hyphens of the name are written as `_`."""

ENGINES = {
    "vllm": "vllm",
    "sglang": "sglang",
    "tensorrt_llm": "tensorrt_llm",
    "megatron_core": "megatron",
    "deepspeed": "deepspeed",
}
"""Engine by distribution, those that serve first: a server's image often holds a trainer's package too."""

NCCL_WHEELS = ("nvidia_nccl_cu13", "nvidia_nccl_cu12", "nvidia_nccl_cu11", "nvidia_nccl")
CUDA_WHEELS = ("nvidia_cuda_runtime", "nvidia_cuda_runtime_cu12", "nvidia_cuda_runtime_cu11")

NCCL = re.compile(r"lib[nr]ccl\.so\.([0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3})")
CUDA_OF_TORCH = re.compile(r"\+cu([0-9]{2})([0-9])\b")

PYTHONS = ("usr/lib", "usr/local/lib", "opt/venv/lib", "opt/conda/lib")
"""Where interpreters of images lie, below the root."""


def parse_driver(text: str) -> tuple[str | None, bool | None]:
    """Version of the NVIDIA driver and whether its kernel module is the open one.

    From /proc/driver/nvidia/version; (None, None) for other text.
    """
    found = NVRM.search(text + " ")
    return (found[2], found[1] is not None) if found else (None, None)


def parse_metadata_name(name: str) -> tuple[str, str] | None:
    """Distribution, in lower case with `_` for all separators, and version, by a metadata folder's name."""
    found = METADATA.fullmatch(name) if len(name) < 256 else None
    return (re.sub(r"[-_.]+", "_", found[1]).lower(), found[2]) if found else None


def read_software(roots: Roots) -> tuple[Software, tuple[ProbeFault, ...]]:
    """Driver, libraries and engine. Several engines in one place leave the engine open."""
    reader = Reader("software")
    driver, opened = parse_driver(reader.text(roots.proc / "driver/nvidia/version") or "")
    if driver is None:
        driver = reader.text(roots.sys / "module/amdgpu/version", MISSING) or None
    packages = _packages(reader, roots)
    engines = {ENGINES[name]: version for name, version in packages.items() if name in ENGINES}
    engine = next(iter(engines)) if len(engines) == 1 else None
    torch = packages.get("torch")
    if not packages:
        reader.note("absent", "site-packages", "no Python package was found where the job's may be")
    hypervisor, faults = read_hypervisor(roots)
    software = Software(
        hypervisor=hypervisor,
        driver=driver,
        open_driver=opened,
        torch=torch,
        cuda_runtime=_cuda(torch, packages),
        nccl=_nccl(reader, roots, packages),
        engine=engine,
        engine_version=None if engine is None else engines[engine],
    )
    return software, (*reader.faults(), *faults)


def package_folders(reader: Reader, roots: Roots) -> Iterator[str]:
    """Folders of Python packages, those that a `python` of this environment would search first."""
    env = roots.env
    yield from (folder for folder in env.get("PYTHONPATH", "").split(":") if folder.startswith("/"))
    prefixes = [env[name].rstrip("/") + "/lib" for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if env.get(name)]
    if roots.live and str(roots.root) == "/":
        yield from (folder for folder in sys.path if folder.startswith("/"))
    for prefix in (*prefixes, *(f"/{folder}" for folder in PYTHONS)):
        for name in reader.names(roots.place(prefix), MISSING) if prefix.startswith("/") else ():
            if re.fullmatch(r"python3(?:\.[0-9]{1,2})?", name):
                yield f"{prefix}/{name}/site-packages"
                yield f"{prefix}/{name}/dist-packages"


def _packages(reader: Reader, roots: Roots) -> Mapping[str, str]:
    """Versions by distribution; of a name that several folders have, the one that is searched first."""
    found: dict[str, str] = {}
    for folder in dict.fromkeys(package_folders(reader, roots)):
        for name in reader.names(roots.place(printable(folder)), MISSING, METADATA):
            distribution = parse_metadata_name(name)
            if distribution is not None:
                found.setdefault(*distribution)
    return found


def _cuda(torch: str | None, packages: Mapping[str, str]) -> str | None:
    """CUDA that the job's libraries are of, `12.8`: by torch's `+cu128`, else by the runtime's wheel."""
    found = CUDA_OF_TORCH.search(torch or "")
    if found:
        return f"{found[1]}.{found[2]}"
    wheel = next((packages[name] for name in CUDA_WHEELS if name in packages), None)
    return ".".join(wheel.split(".")[:2]) if wheel else None


def _nccl(reader: Reader, roots: Roots, packages: Mapping[str, str]) -> str | None:
    """NCCL by what the loader takes first: LD_LIBRARY_PATH, torch's own wheel, the system."""
    told = set(roots.env.get("LD_LIBRARY_PATH", "").split(":"))
    found = find_libraries(reader, roots, library_folders(reader, roots), NCCL)
    wheel = next((packages[name] for name in NCCL_WHEELS if name in packages), None)
    first = [library for library in found if library.folder in told]
    versions = [NCCL.sub(r"\1", library.name) for library in first]
    versions += [wheel] if wheel else []
    versions += [NCCL.sub(r"\1", library.name) for library in found if library.searched]
    return next(iter(versions), None)
