"""Which environment variables topocheck may keep. An allow-list: everything else is left where it is."""

from __future__ import annotations

import re

from topocheck.launchers import LAUNCHERS

__all__ = ["PREFIXES", "VARIABLES", "allowed"]

DEVICES = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
)
NODE = ("HOSTNAME", "NODE_NAME", "POD_NAME", "POD_IP", "HOST_IP", "OMP_NUM_THREADS")
NETWORK = (
    "GLOO_SOCKET_IFNAME",
    "TP_SOCKET_IFNAME",
    "RDMAV_FORK_SAFE",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING",
    "TORCH_NCCL_BLOCKING_WAIT",
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE",
)
ENGINES = (
    "VLLM_HOST_IP",
    "VLLM_DP_RANK",
    "VLLM_DP_RANK_LOCAL",
    "VLLM_DP_SIZE",
    "VLLM_DP_MASTER_IP",
    "VLLM_DP_MASTER_PORT",
    "VLLM_PP_LAYER_PARTITION",
    "VLLM_RAY_BUNDLE_INDICES",
    "VLLM_USE_RAY_V2_EXECUTOR_BACKEND",
    "VLLM_RAY_PER_WORKER_GPUS",
    "VLLM_RAY_DP_PACK_STRATEGY",
    "VLLM_RAY_DP_PLACEMENT_NODE_IPS",
    "VLLM_USE_RAY_V2_EXECUTOR_BACKEND",
    "VLLM_PROCESS_NAME_PREFIX",
    "VLLM_NCCL_SO_PATH",
    "VLLM_ALL2ALL_BACKEND",
    "SGLANG_PP_LAYER_PARTITION",
    "SGLANG_DP_RANK",
    "SGLANG_RAY_BUNDLE_INDICES",
    "SGLANG_ONE_VISIBLE_DEVICE_PER_PROCESS",
    "TLLM_DISABLE_MPI",
    "TLLM_LOG_LEVEL",
    "CUDA_DEVICE_MAX_CONNECTIONS",
)

LAUNCH = tuple(name for launcher in LAUNCHERS.values() for name in launcher.variables)
VARIABLES = frozenset((*LAUNCH, *DEVICES, *NODE, *NETWORK, *ENGINES))
"""Names that are kept."""

PREFIXES = ("NCCL_", "RCCL_", "UCX_", "UCC_", "FI_", "NVSHMEM_", "MLX5_", "PSM3_")
"""Communication libraries: all names that begin so, but for those that look like a secret."""

SECRET = re.compile(
    r"(?:^|_)(?:ACCESS|API|AUTH|CERTS?|COOKIES?|CREDS?|CREDENTIALS?|JWT|KEYS?|PASS|PASSPHRASE|PASSW(?:OR)?D"
    r"|PASSWORDS|PRIVATE|PWD|SECRETS?|TOKENS?|URI|URL|USER|USERNAME)(?:_|$)|APIKEY|PASSWORD|SECRET|TOKEN"
)
"""Words of names whose values nobody may see. UCX_IB_PKEY, a partition's number, is none of them."""


def allowed(name: str) -> bool:
    """True if a variable of this name may go into a snapshot. Case counts, as it does to the programs."""
    return name in VARIABLES or (name.startswith(PREFIXES) and not SECRET.search(name.upper()))
