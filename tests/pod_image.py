"""Pods that really run, by podman: the image of templates/Containerfile, on a base made of this Python."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from checkout import ROOT

__all__ = ["BASE", "IMAGE", "Podman", "build"]

IMAGE = "localhost/topocheck-test:1"
BASE = "localhost/topocheck-base:1"
CONFIGURATION = """[containers]
log_driver = "k8s-file"
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
netns = "host"

[engine]
cgroup_manager = "cgroupfs"
runtime = "runc"
events_logger = "file"
"""
LINKED = ("markupsafe", "msgspec", "yaml")
"""Packages with machine code that topocheck needs."""
BUILD = (
    "build",
    "--network=host",
    f"--build-arg=BASE={BASE}",
    "--build-arg=PIP_NO_INDEX=1",
    "--build-arg=PIP_FIND_LINKS=/src/wheels",
    f"--tag={IMAGE}",
)
"""The line of README.md, with a base for which no registry is asked."""
LEFT_OUT = {
    "__pycache__",
    "test",
    "idlelib",
    "ensurepip",
    "tkinter",
    "lib2to3",
    "site-packages",
    "turtledemo",
}
LIBRARY = re.compile(r"(?:=> )?(/\S+) \(0x")


@dataclass(frozen=True, slots=True)
class Podman:
    """Podman with a storage of its own."""

    folder: Path
    driver: str

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run one command."""
        storage = ["--root", str(self.folder / "root"), "--runroot", str(self.folder / "run")]
        return subprocess.run(
            ["podman", *storage, "--storage-driver", self.driver, *arguments],
            env=os.environ | {"CONTAINERS_CONF": str(self.folder / "containers.conf")},
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )


def build(folder: Path) -> tuple[Podman | None, str]:
    """Podman with the image of templates/Containerfile; None and why, where it cannot run containers here."""
    (folder / "containers.conf").write_text(CONFIGURATION)
    write_base(folder / "base.tar")
    said = ""
    for driver in ("overlay", "vfs"):
        podman = Podman(folder, driver)
        done = podman("import", "--change", "ENV PATH=/usr/bin", str(folder / "base.tar"), BASE)
        if not done.returncode:
            done = podman("run", "--rm", "--network=host", BASE, "/usr/bin/python3", "--version")
        if not done.returncode:
            (folder / "base.tar").unlink()
            place = context(folder / "context")
            made = podman(*BUILD, f"--file={place}/templates/Containerfile", str(place))
            assert made.returncode == 0, made.stderr[-4000:]
            return podman, ""
        said = done.stderr.strip().rpartition("\n")[2]
    return None, said


def context(folder: Path) -> Path:
    """What .containerignore lets into a build, and the wheels that a user puts beside it, in a folder."""
    folder.mkdir()
    listed = (ROOT / ".containerignore").read_text(encoding="utf-8").split()
    for name in (line[1:] for line in listed if line.startswith("!") and line != "!wheels"):
        source, place = ROOT / name, folder / name
        if source.is_dir():
            shutil.copytree(source, place, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, place)
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "-w", "wheels", ".[kubernetes]", "setuptools"]
    done = subprocess.run(pip, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


def write_base(path: Path) -> None:
    """This Python and pip as a root file system: no registry is needed. It has no bytecode, like others."""
    standard = Path(sysconfig.get_path("stdlib"))
    python = Path(sys.executable).resolve()
    files = dict(tree(standard, standard))
    pip = package("pip")
    files |= {f"site-packages/{inner}": file for inner, file in tree(pip, pip.parent)}
    loadable = [file for file in files.values() if ".so" in file.name]
    # Wheels are linked with more of the C library than Python is: a base has all of it.
    loadable += [file for name in LINKED for _, file in tree(package(name), ROOT) if ".so" in file.name]
    with tarfile.open(path, "w", dereference=True) as archive:
        for inner, file in files.items():
            archive.add(file, f"{standard.relative_to('/')}/{inner}")
        archive.add(python, str(python.relative_to("/")))
        for library in libraries([python, *loadable]):
            archive.add(library, library.lstrip("/"))
        for name in ("python", "python3"):
            link = tarfile.TarInfo(f"usr/bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, str(python)
            archive.addfile(link)
        for name in ("proc", "sys", "dev", "tmp", "run", "etc"):
            root = tarfile.TarInfo(name)
            root.type, root.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            archive.addfile(root)


def package(name: str) -> Path:
    """Folder of an installed package."""
    spec = importlib.util.find_spec(name)
    assert spec is not None, name
    assert spec.origin is not None, name
    return Path(spec.origin).parent


def tree(folder: Path, top: Path) -> Iterator[tuple[str, Path]]:
    """(path below `top`, file) of all files; links to folders are not followed."""
    for base, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in LEFT_OUT]
        for name in names:
            file = Path(base, name)
            if file.is_file():
                yield os.path.relpath(file, top), file


def libraries(files: list[Path]) -> list[str]:
    """Shared libraries that these files are linked with, and the loader."""
    done = subprocess.run(["ldd", *map(str, files)], capture_output=True, text=True, check=False)
    return sorted(set(LIBRARY.findall(done.stdout)))
