"""Vectors of the engines' own functions, in the names that topocheck has for sizes and groups.

The files in `engines/` hold them in this form; the originals have the engines' names. `layout` and `split`
turn one into the other, so that the test of the files can tell whether a vector was left out.
"""

from __future__ import annotations

from typing import Any

__all__ = ["Vector", "layout", "split"]

Vector = dict[str, Any]

SIZES = {
    "vllm": {"tp": "tensor", "pp": "pipeline", "dp": "data", "pcp": "context", "dcp": "decode_context"}
    | {"external_dp": "data_external"},
    "sglang": {"tp": "tensor", "pp": "pipeline", "dp": "data", "attn_dp": "attention_data"}
    | {"attn_cp": "context", "ep": "expert", "moe_dp": "moe_data", "dcp": "decode_context"},
    "tensorrt_llm": {"tp": "tensor", "pp": "pipeline", "cp": "context"}
    | {"moe_tp": "expert_tensor", "moe_ep": "expert"},
    "megatron": {"tp": "tensor", "pp": "pipeline", "dp": "data", "cp": "context", "ep": "expert"}
    | {"etp": "expert_tensor"},
    "deepspeed": {"tp": "tensor", "pp": "pipeline", "dp": "data"},
    "torchtitan": {"tp": "tensor", "pp": "pipeline", "dp_replicate": "data_replicate"}
    | {"dp_shard": "data_shard", "cp": "context", "ep": "expert"},
    "torch": {"tp": "tensor", "pp": "pipeline", "dp": "data", "cp": "context"},
    "accelerate": {"dp_replicate": "data_replicate", "dp_shard": "data_shard", "cp": "context"}
    | {"sp": "sequence", "tp": "tensor"},
}
FOLLOWS = {
    "sglang": {"attn_tp", "moe_tp"},
    "megatron": {"expert_dp", "gtp_remat"},
    "tensorrt_llm": {"cp_type"},
}
"""Sizes that the engine works out from the others, and what topocheck has no size for because it is 1."""
OTHER_NAMES = {"megatron-core": "megatron", "torch-devicemesh": "torch"}
GROUPS = {
    "embedding": "embedding",
    "ep": "expert",
    "dp": "data",
    "attn_cp": "context",
    "attn_tp": "attention_tensor",
    "moe_ep": "expert",
    "moe_tp": "expert_tensor",
    "moe_dp": "moe_data",
    "expert_tp": "expert_tensor",
    "expert_dp": "expert_data",
    "efsdp": "expert_data",
    "fsdp": "data_shard_context",
    "dp-cp": "data_context",
    "tp-cp": "tensor_context",
    "tp-ep": "tensor_expert",
    "tp-pp": "tensor_pipeline",
    "model_group": "tensor_pipeline",
}
"""Groups that are no size."""
PLACES = ("gpu_id", "local_gpu_index")
GPU = ("base_gpu_id", "gpu_id_step")
OPTIONS = {
    "first": "num_layers_in_first_pipeline_stage",
    "last": "num_layers_in_last_pipeline_stage",
    "account_for_embedding": "account_for_embedding_in_pipeline_split",
    "account_for_loss": "account_for_loss_in_pipeline_split",
    "vpp": "virtual_pipeline_model_parallel_size",
    "mtp": "mtp_num_layers",
}
"""Megatron's options, as the vectors shorten them."""


def engine_and_version(vector: Vector) -> tuple[str, str]:
    """The engine as a plan names it, and the release; TensorRT-LLM's commits are before and after a swap."""
    named: str = vector["engine"]
    engine = OTHER_NAMES.get(named, named)
    version: str = vector.get("engine_version_or_commit") or vector["commit"]
    if engine == "tensorrt_llm":
        return engine, "1.1.0" if version.startswith("b35ac1b6") else "1.3.0"
    return engine, version.removeprefix("torch ").split()[0]


def layout(vector: Vector) -> Vector:
    """One vector of rank_layouts.json."""
    engine, version = engine_and_version(vector)
    names = SIZES[engine]
    unknown = vector["sizes"].keys() - names.keys() - FOLLOWS.get(engine, set()) - {"nnodes", *GPU}
    assert not unknown, f"sizes without a name: {unknown}"
    sizes = {names[key]: size for key, size in vector["sizes"].items() if key in names}
    if sizes.get("data_external") == 1:
        del sizes["data_external"]
    found: Vector = {"engine": engine, "version": version, "sizes": sizes, "world": vector["world_size"]}
    if engine in {"megatron", "torch"}:
        found["order"] = vector["order"].split()[0]
    if "nnodes" in vector["sizes"]:
        found["nodes"] = vector["sizes"]["nnodes"]
    if GPU[0] in vector["sizes"]:
        found["gpu"] = {key: vector["sizes"][key] for key in GPU}
    if vector.get("error") or vector.get("unexpected_ranks") or vector.get("missing_ranks"):
        return {**found, "refused": True}
    groups = {group_name(engine, kind): sorted(groups) for kind, groups in vector["groups"].items()}
    return {**found, **({"groups": groups} if groups else {}), **placed(vector), **coordinates(vector)}


def group_name(engine: str, kind: str) -> str:
    """topocheck's name of a kind of group."""
    return SIZES[engine].get(kind) or GROUPS[kind]


def placed(vector: Vector) -> Vector:
    """Node and GPU of each rank, or the order in which Ray's bundles or workers became ranks."""
    ranks = vector.get("placement", [])
    if "bundle_nodes" in vector:
        return {
            "bundles": vector["bundle_nodes"],
            "driver": vector["driver_node"],
            "ranked": [rank["bundle"] for rank in ranks],
            "actors": [rank["actor_name_suffix"] for rank in ranks],
        }
    if "driver_ip" in vector:
        addresses, driver = vector["worker_ips_in_creation_order"], vector["driver_ip"]
        return {
            "workers": addresses,
            "driver": driver,
            "ranked": [rank["created_rank"] for rank in ranks],
        }
    key = next((key for key in PLACES if ranks and key in ranks[0]), None)
    if key is None:
        return {}
    return {"slots": [[rank["node_rank"], rank[key]] for rank in ranks]}


def coordinates(vector: Vector) -> Vector:
    """Coordinates of each rank by axis."""
    names = {"pp_rank": "pipeline", "tp_rank": "tensor"}
    names |= {"attn_tp_rank": "attention_tensor", "attn_dp_rank": "attention_data"}
    ranks = vector.get("coords")
    if not ranks:
        return {}
    assert [rank["rank"] for rank in ranks] == list(range(len(ranks)))
    return {"coordinates": {axis: [rank[key] for rank in ranks] for key, axis in names.items()}}


def split(vector: Vector) -> Vector:
    """One vector of layer_partitions.json."""
    engine, version = engine_and_version(vector)
    found: Vector = {"engine": engine, "version": version}
    found |= {"layers": vector["num_layers"], "stages": vector["pp_size"]}
    override, options = asked(engine, vector["override"] or {})
    if override is not None:
        found["override"] = override
    if options:
        found["options"] = options
    if vector.get("error") or vector.get("config_level_error"):
        return {**found, "refused": True}
    chunks = vector.get("chunk_ranges")
    found |= {"chunks": chunks} if chunks else {"ranges": vector["ranges"]}
    if "layout_special" in vector:
        found["ends"] = [[one["pp"], one["vpp"], one["has"]] for one in vector["layout_special"]]
    return found


def asked(engine: str, override: Vector) -> tuple[str | None, Vector]:
    """What the user asked for: the engine's override string, and options."""
    if "layout" in override:
        return override["layout"], {OPTIONS[key]: value for key, value in override.items() if key != "layout"}
    if "env" in override:
        return override["value"], {}
    if "arg" in override:
        return ",".join(map(str, override["value"])), {}
    options = (
        {OPTIONS.get(key, key): value for key, value in override.items()} if engine == "megatron" else {}
    )
    options = options or dict(override)
    if engine == "deepspeed" and options["partition_method"] == "balanced":
        options["partition_method"] = "parameters"  # the method that balances the weights given
    return None, options
