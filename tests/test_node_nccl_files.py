"""Files that tell NCCL what no variable of the job shows."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from msgspec.structs import replace
from rooted import lay_out, roots_at

from topocheck.probes.node.nccl_files import TOPOLOGY, parse_conf, read_nccl_files
from topocheck.snapshot import NcclFile


def test_a_machine_without_such_files_has_none_and_no_fault(tmp_path: Path) -> None:
    assert read_nccl_files(roots_at(tmp_path)) == ((), ())


def test_the_system_file_is_read_by_allow_list(tmp_path: Path) -> None:
    lay_out(
        "etc/nccl.conf <<\n# site\nNCCL_IB_HCA==mlx5_0\nNCCL_DEBUG=INFO\nNCCL_AUTH_TOKEN=abc\nPATH=/x\n>>",
        tmp_path,
    )
    files, faults = read_nccl_files(roots_at(tmp_path))
    assert files == (
        NcclFile(
            path="/etc/nccl.conf",
            kind="settings",
            settings={"NCCL_IB_HCA": "=mlx5_0", "NCCL_DEBUG": "INFO"},
        ),
    )
    assert faults == ()


def test_a_named_file_goes_before_that_of_the_system(tmp_path: Path) -> None:
    lay_out("etc/nccl.conf = NCCL_TOPO_FILE=/etc/a.xml\nopt/my.conf = NCCL_TOPO_FILE=/etc/b.xml", tmp_path)
    lay_out("etc/b.xml = <system/>", tmp_path)
    files, _ = read_nccl_files(roots_at(tmp_path, {"NCCL_CONF_FILE": "/opt/my.conf"}))
    assert [file.path for file in files] == ["/opt/my.conf", "/etc/nccl.conf", "/etc/b.xml"]
    assert files[-1] == NcclFile(path="/etc/b.xml", kind="topology")


def test_the_environment_goes_before_every_file(tmp_path: Path) -> None:
    lay_out("etc/nccl.conf = NCCL_TOPO_FILE=/etc/a.xml", tmp_path)
    files, _ = read_nccl_files(roots_at(tmp_path, {"NCCL_TOPO_FILE": "/none.xml"}))
    assert files[-1] == NcclFile(path="/none.xml", kind="topology", exists=False)


def test_what_is_named_and_missing_is_told(tmp_path: Path) -> None:
    files, faults = read_nccl_files(
        roots_at(tmp_path, {"NCCL_CONF_FILE": "/none.conf", "NCCL_GRAPH_FILE": "/none.xml"})
    )
    assert files == (
        NcclFile(path="/none.conf", kind="settings", exists=False),
        NcclFile(path="/none.xml", kind="graph", exists=False),
    )
    assert faults == ()


def test_a_topology_that_a_daemon_left_is_found_through_links(tmp_path: Path) -> None:
    lay_out("var/run -> /run\nrun/nvidia-topologyd/virtualTopology.xml = <system/>", tmp_path)
    files, _ = read_nccl_files(roots_at(tmp_path))
    assert files == (NcclFile(path=TOPOLOGY, kind="topology"),)


def test_the_users_file_lies_in_the_home_of_the_user_database(tmp_path: Path) -> None:
    home = pwd.getpwuid(os.getuid()).pw_dir
    lay_out(f"{home.lstrip('/')}/.nccl.conf = NCCL_DEBUG=WARN", tmp_path)
    roots = roots_at(tmp_path, {"HOME": "/elsewhere"})
    assert read_nccl_files(roots)[0] == ()
    (file,), _ = read_nccl_files(replace(roots, live=True))
    assert (file.path, file.settings) == (f"{home}/.nccl.conf", {"NCCL_DEBUG": "WARN"})


def test_lines_are_read_as_nccl_reads_them() -> None:
    text = "NCCL_A=1\nNCCL_A=2\n NCCL_B=1\n#NCCL_C=1\nNCCL_D\nNCCL_E= x # y \nNCCL_F=a=b\nNCCL_G=a\0b"
    assert parse_conf(text) == {"NCCL_A": "1", "NCCL_E": " x # y ", "NCCL_F": "a=b", "NCCL_G": "a"}
