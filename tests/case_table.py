"""Every kind of reported fault: case -> rule -> verdict -> severity, and the test that shows it.

The cases are those of the collection of reported faults, C01 to C68. `where` is a run of the collection's
answer key (C01-a), which `test_cases` holds verify to; or a fixture of our own: a job of `case_kinds`, or a
set-up of `test_healthy` where nothing may be found. Rule `*` is every rule.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

__all__ = ["CASES", "TABLE", "Row"]

Severity = Literal["error", "warning"]

CASES = tuple(f"C{number:02}" for number in range(1, 69))


class Row(NamedTuple):
    """What one rule says of one case."""

    case: str
    rule: str
    verdict: Literal["fail", "unknown", "pass"]
    severity: Severity | None
    """Of its findings; None without one, and where the answer key leaves it open."""
    where: str
    names: tuple[str, ...] = ()
    """What the finding says."""

    def __str__(self) -> str:
        return f"{self.case}-{self.rule}-{self.where}"


def error(case: str, rule: str, where: str, *names: str) -> Row:
    """The rule fails, and the job must not start."""
    return Row(case, rule, "fail", "error", where, names)


def warning(case: str, rule: str, where: str, *names: str) -> Row:
    """The rule fails, and the job would start."""
    return Row(case, rule, "fail", "warning", where, names)


def unknown(case: str, rule: str, where: str) -> Row:
    """The evidence decides nothing."""
    return Row(case, rule, "unknown", None, where)


def well(case: str, where: str) -> Row:
    """Nothing above information may be found."""
    return Row(case, "*", "pass", None, where)


TABLE: tuple[Row, ...] = (
    # Rank -> stage -> node.
    error("C01", "TP001", "C01-a"),
    warning("C02", "TP001", "C02-a"),
    error("C03", "ID010", "driver_outside", "10.44.0.1", "c" * 56, "d" * 56),
    well("C04", "warned"),
    error("C05", "ID014", "C05-a"),
    error("C06", "ID015", "C06-a"),
    error("C07", "ID006", "by_two_orders", "node-a", "4..7"),
    error("C07", "TP001", "cyclic", "0..3", "node-a", "node-b"),
    error("C08", "ID001", "C08-a"),
    error("C09", "OBS001", "C09-a"),
    error("C10", "TP005", "C10-a"),
    error("C10", "PP002", "C10-b"),
    error("C11", "ID015", "C11-a"),
    error("C12", "ID008", "beyond_the_cgroup", "CUDA_VISIBLE_DEVICES=4,5,6,7", "device 4"),
    error("C12", "ID016", "others_gpus", "SLURM_JOB_GPUS=4,5,6,7"),
    error("C13", "ID003", "C13-a"),
    # Visibility and local rank.
    unknown("C14", "ID003", "C14-a"),
    error("C14", "ID003", "C14-b"),
    well("C15", "C15-a"),
    error("C16", "ID004", "C16-a"),
    warning("C16", "NET003", "C16-a"),
    error("C17", "ID012", "nested", "8 tasks", "64 processes"),
    error("C18", "ID004", "C18-a"),
    error("C19", "ID009", "C19-a"),
    error("C19", "TP003", "C19-a"),
    error("C20", "ID013", "sliced", "ranks 0, 1", "gpu-7", "MIG"),
    error("C21", "ID015", "C21-a"),
    error("C22", "ID005", "C22-a"),
    warning("C22", "ENV007", "C22-b"),
    # Links inside a node.
    warning("C23", "TP002", "C23-a"),
    warning("C23", "TP004", "C23-a"),
    warning("C24", "TP008", "C24-a"),
    error("C25", "TP002", "C25-a"),
    warning("C25", "TP002", "C25-b"),
    warning("C26", "NV001", "lesser_bridge", "3 bonded NVLinks", "4"),
    error("C27", "NV001", "C27-a"),
    warning("C28", "TP002", "C28-a"),
    warning("C28", "TP004", "C28-a"),
    warning("C29", "TP008", "patched", "GPUs 0-1 of gpu-1", "custom-all-reduce"),
    # NVSwitch fabric, NVL72.
    error("C30", "NV002", "C30-a"),
    error("C31", "NV002", "C31-a"),
    error("C32", "NV002", "C32-a"),
    Row("C33", "TP001", "fail", None, "C33-a"),
    well("C33", "C33-c"),
    error("C34", "TP001", "C34-a"),
    unknown("C34", "TP001", "C34-c"),
    well("C35", "C35-a"),
    # The network.
    error("C36", "NET009", "C36-a"),
    error("C37", "NET009", "C37-a"),
    error("C38", "NET009", "without_verbs", "pod-0", "libibverbs"),
    error("C39", "NET009", "C39-a"),
    unknown("C39", "ENV004", "C39-b"),
    error("C40", "NET004", "C40-b"),
    unknown("C41", "PP003", "C41-a"),
    error("C42", "NET001", "C42-b"),
    unknown("C43", "TP002", "C43-a"),
    error("C44", "NET005", "misread_filter", "^=mlx5_14", "gpu-1"),
    error("C44", "NET005", "other_names", "mlx5_3", "mlx5_8", "gpu-2"),
    warning("C44", "NET010", "fewer_nics", "8 x InfiniBand NIC", "6 x InfiniBand NIC"),
    warning("C44", "ENV003", "stale_file", "/etc/nccl.conf", "gpu-2"),
    error("C44", "ENV001", "stale_file", "NCCL_IB_HCA", "gpu-2"),
    warning("C45", "OBS009", "C45-b"),
    well("C45", "C45-c"),
    warning("C46", "PP004", "C46-b"),
    well("C47", "C47-a"),
    well("C48", "C48-b"),
    error("C49", "NET009", "C49-a"),
    error("C49", "OBS003", "C49-a"),
    error("C50", "ID014", "C50-a"),
    error("C51", "NET011", "C51-a"),
    Row("C52", "ENV003", "fail", None, "C52-a"),
    error("C53", "ENV005", "C53-a"),
    # Sameness of nodes.
    warning("C54", "VER001", "other_driver", "node-c", "535.161.07"),
    error("C54", "VER002", "other_nccl", "node-c", "2.18.1"),
    error("C54", "VER003", "other_engine", "node-c", "vllm 0.4.0"),
    error("C55", "ID007", "constant_node_rank", "node rank 0", "node-a", "node-b"),
    error("C56", "TP001", "C56-a"),
    error("C57", "PP002", "C57-b"),
    well("C58", "C58-a"),
    # Leftovers, engine logs.
    error("C59", "CAP001", "left_behind", "pid 31337", "12 days", "uid 1003"),
    error("C60", "TP001", "C60-a"),
    error("C60", "OBS001", "C60-c"),
    error("C61", "ID009", "C61-b"),
    well("C61", "C61-a"),
    warning("C62", "ENV006", "drifting", "node-a", "2 s"),
    error("C62", "ENV006", "far_apart", "node-a", "900 s", "rendezvous"),
    # Logs of two nodes.
    well("C63", "C63-a"),
    error("C63", "TP001", "C63-b"),
    error("C64", "OBS003", "C64-a"),
    warning("C64", "OBS002", "C64-a"),
    well("C65", "C65-a"),
    error("C65", "TP001", "C65-b"),
    unknown("C66", "TP001", "C66-a"),
    error("C67", "NV001", "unlinked", "tray-2", "rank 5", "0 active NVLinks", "18"),
    error("C67", "TP002", "unlinked", "no NVLink to 3 of its 3 TP peers"),
    warning("C68", "NET010", "swapped", "mlx5_0 at 0000:15:00.0", "mlx5_0 at 0000:16:00.0"),
)
