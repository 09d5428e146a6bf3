"""What stages hold besides layers: embedding, final norm, head, their tied weights, loss, MTP."""

from __future__ import annotations

from collections.abc import Mapping

from topocheck.engines.layout import LayerSplit

__all__ = ["EMBEDDING_COPY", "MTP", "Modules", "at_the_ends", "language_model", "not_known"]

Modules = tuple[tuple[str, ...], ...]
"""Names of the modules of each stage, in the order in which data passes them.

`embedding`, `final_norm`, `head`, `loss`, `mtp` (multi-token prediction), and `embedding_copy`: weights of
the embedding that a later stage holds as well, because its head or its MTP uses them.
"""

EMBEDDING_COPY = "embedding_copy"
MTP = "mtp"


def at_the_ends(stages: int, last: int, tied: bool | None) -> Modules:
    """Embedding on stage 0, final norm and head on stage `last`, which holds a copy of tied weights.

    `last` is not the last stage where a schedule folds the pipeline back.
    """
    held: list[list[str]] = [[] for _ in range(stages)]
    held[0].append("embedding")
    held[last] += ["final_norm", "head"]
    if tied and last:
        held[last].append(EMBEDDING_COPY)
    return tuple(map(tuple, held))


def language_model(
    stages: int, split: LayerSplit | None, tied: bool | None, options: Mapping[str, object]
) -> Modules:
    """Embedding first, final norm and head last, as inference engines build a decoder."""
    return at_the_ends(stages, stages - 1, tied)


def not_known(
    stages: int, split: LayerSplit | None, tied: bool | None, options: Mapping[str, object]
) -> Modules | None:
    """The script alone says what its stages hold."""
    return None
