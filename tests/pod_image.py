"""Pods that really run, by podman: an image made of this Python, its libraries and this very checkout."""

from __future__ import annotations

import importlib.util
import io
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from checkout import ROOT

__all__ = ["IMAGE", "Podman", "build"]

IMAGE = "localhost/topocheck-test:1"
CONFIGURATION = """[containers]
log_driver = "k8s-file"
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
netns = "host"

[engine]
cgroup_manager = "cgroupfs"
runtime = "runc"
events_logger = "file"
"""
PACKAGES = ("ClusterShell", "click", "jinja2", "markupsafe", "msgspec", "networkx", "pynvml", "yaml")
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
SCRIPT = "import sys; from topocheck.cli.main import main; sys.exit(main())"
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
            timeout=300,
            check=False,
        )


def build(folder: Path) -> tuple[Podman | None, str]:
    """Podman with the image; None and why, where it cannot run containers here."""
    (folder / "containers.conf").write_text(CONFIGURATION)
    write_image(folder / "image.tar")
    said = ""
    for driver in ("overlay", "vfs"):
        podman = Podman(folder, driver)
        done = podman("import", "--change", "ENV PATH=/usr/bin", str(folder / "image.tar"), IMAGE)
        if not done.returncode:
            done = podman("run", "--rm", "--network=host", IMAGE, "/usr/bin/topocheck", "--version")
        if not done.returncode:
            (folder / "image.tar").unlink()
            return podman, ""
        said = done.stderr.strip().rpartition("\n")[2]
    return None, said


def write_image(path: Path) -> None:
    """Root file system as a tar: no registry and no network is needed."""
    standard = Path(sysconfig.get_path("stdlib"))
    python = Path(sys.executable).resolve()
    files = dict(tree(standard, standard))
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        package = Path(spec.origin or "") if spec else Path()
        if package.name == "__init__.py":
            found = tree(package.parent, package.parent.parent)
            files |= {f"{site(standard)}/{inner}": file for inner, file in found}
        else:
            files[f"{site(standard)}/{package.name}"] = package
    for name in ("topocheck", "topocheck/probes", "topocheck/rules", "topocheck/templates"):
        source = (ROOT / name).resolve()
        files |= {f"{site(standard)}/{name}/{inner}": file for inner, file in tree(source, source)}
    loadable = [file for file in files.values() if ".so" in file.name]
    with tarfile.open(path, "w", dereference=True) as archive:
        for inner, file in files.items():
            archive.add(file, f"{standard.relative_to('/')}/{inner}" if inner[0] != "/" else inner[1:])
        archive.add(python, str(python.relative_to("/")))
        for library in libraries([python, *loadable]):
            archive.add(library, library.lstrip("/"))
        write_script(archive, python)


def site(standard: Path) -> str:
    """Folder of packages in the image."""
    return f"{standard}/site-packages"


def tree(folder: Path, top: Path) -> Iterator[tuple[str, Path]]:
    """(path below `top`, file) of all files; links to folders are not followed."""
    for base, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in LEFT_OUT]
        for name in names:
            file = Path(base, name)
            if file.is_file():
                yield str(file.relative_to(top)), file


def libraries(files: list[Path]) -> list[str]:
    """Shared libraries that these files are linked with, and the loader."""
    done = subprocess.run(["ldd", *map(str, files)], capture_output=True, text=True, check=False)
    return sorted(set(LIBRARY.findall(done.stdout)))


def write_script(archive: tarfile.TarFile, python: Path) -> None:
    """`topocheck` and `python` on the PATH, and folders that a container has."""
    packages = site(Path(sysconfig.get_path("stdlib")))
    text = f"#!{python} -S\nimport site; site.addsitedir({packages!r})\n{SCRIPT}\n"
    entry = tarfile.TarInfo("usr/bin/topocheck")
    data = text.encode()
    entry.size, entry.mode = len(data), 0o755
    archive.addfile(entry, io.BytesIO(data))
    link = tarfile.TarInfo("usr/bin/python")
    link.type, link.linkname = tarfile.SYMTYPE, str(python)
    archive.addfile(link)
    for name in ("proc", "sys", "dev", "tmp", "run", "etc"):
        folder = tarfile.TarInfo(name)
        folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
        archive.addfile(folder)
