"""DPR: one BERT for questions and another one for contexts, each with the first token's vector as its output.

The checkpoints are those of transformers' DPRQuestionEncoder and DPRContextEncoder. Vectors are compared by dot
product.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from remargin.model.backbone import Checkpoint, load_as, refuse_missing
from remargin.model.folder import Settings
from remargin.model.layouts.base import Layout, architectures
from remargin.model.opening import EncoderFolder
from remargin.model.parts import read_part
from remargin.model.weights import read_tensors

CLASSES = {"questions": "DPRQuestionEncoder", "contexts": "DPRContextEncoder"}
BODY = {"questions": "question_encoder", "contexts": "ctx_encoder"}
PROJECTION = "encode_proj"


class DprFolder(EncoderFolder):
    """The backbone lies under names of its own, and may have a projection."""

    @property
    def half(self) -> str:
        """Whether it is the encoder of questions or of contexts."""
        return next(half for half, name in CLASSES.items() if name in architectures(self.settings.transformer))

    @property
    def has_projection(self) -> bool:
        """Whether the vectors are projected."""
        return self.settings.pooling == "cls+linear"

    def projection(self) -> nn.Linear | None:
        """The projection, if the checkpoint was trained with one."""
        names = {f"{BODY[self.half]}.{PROJECTION}.{part}": part for part in ("weight", "bias")}
        tensors = read_tensors(self.settings.transformer, *names)
        if len(tensors) < len(names):
            return None
        weight = next(tensor for tensor in tensors.values() if tensor.dim() == 2)
        head = nn.Linear(weight.shape[1], weight.shape[0])
        head.load_state_dict({names[name]: tensor for name, tensor in tensors.items()})
        return head

    def load(self) -> tuple[nn.Module, Checkpoint]:
        """The BERT inside, as a BERT."""
        import transformers

        folder = self.settings.transformer
        kind = CLASSES[self.half]
        whole, info = load_as(getattr(transformers, kind), folder, kind, "use a complete checkpoint")
        refuse_missing(info, folder)
        body: Any = getattr(whole, BODY[self.half]).bert_model
        fields = whole.config.to_dict()
        del fields["model_type"], fields["architectures"], fields["projection_dim"]
        body.config = transformers.BertConfig(**fields)
        return body, Checkpoint(None, set(info["unexpected_keys"]))


def _recognises(folder: Path, half: str) -> bool:
    return CLASSES[half] in architectures(folder)


def _open(folder: Path) -> EncoderFolder:
    projected = read_part(folder / "config.json", dict).get("projection_dim")
    return DprFolder(Settings(folder, "cls+linear" if projected else "cls", "dot"))


QUESTIONS = Layout("DPR's question encoder", partial(_recognises, half="questions"), encoder=_open, side="queries")
CONTEXTS = Layout("DPR's context encoder", partial(_recognises, half="contexts"), encoder=_open, side="documents")
