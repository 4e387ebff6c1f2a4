"""Our losses for the trainer of sentence-transformers.

A loss gets the columns of the data set in their order: (anchor, positive), (anchor, positive, negative), or (anchor,
positive, negative_1, ..., negative_k). The names of the columns do not matter.

| loss                | pairs without negatives           | label column                                        |
|---------------------|-----------------------------------|-----------------------------------------------------|
| `SoftmaxMarginLoss` | yes: other rows' positives        | not used                                            |
| `ContrastiveLoss`   | yes: other rows' positives        | not used                                            |
| `MarginLoss`        | no                                | with target="teacher": margins or scores (see there) |

No ids reach a loss there, but tokens do: texts of the same tokens are taken for the same text. With `mask_known`, a
positive of the batch that is known to be relevant to a query is no negative of it. `batch_sampler="no_duplicates"`
of the training arguments keeps such rows out of a batch altogether; either is enough.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn

from remargin.losses import contrastive, margin, softmax_margin
from remargin.losses.inputs import Similarity, check_one_of
from remargin.losses.margin import Error, NamedTarget
from remargin.training.devices.ranks import gathered

log = logging.getLogger(__name__)

Features = Mapping[str, Any]

PAPER = """
@inproceedings{gienapp2025learning,
    title = {Learning Effective Representations for Retrieval Using Self-Distillation with Adaptive Relevance Margins},
    author = {Gienapp, Lukas and Deckers, Niklas and Potthast, Martin and Scells, Harrisen},
    booktitle = {Proceedings of the 2025 International ACM SIGIR Conference on Innovative Concepts and Theories in
        Information Retrieval (ICTIR)},
    year = {2025},
    doi = {10.1145/3731120.3744594},
}
"""
INFO_NCE = """
@misc{oord2018representation,
    title = {Representation Learning with Contrastive Predictive Coding},
    author = {van den Oord, Aaron and Li, Yazhe and Vinyals, Oriol},
    year = {2018},
    eprint = {1807.03748},
    archivePrefix = {arXiv},
}
"""

# A hash of tokens is a polynomial in this odd number modulo 2**64, so that it is the same in all processes.
MULTIPLIER = 6364136223846793005


class _Loss(nn.Module):
    """One of our losses in the shape that sentence-transformers gives its own."""

    least_columns = 2

    def __init__(self, model: nn.Module, loss: nn.Module, gather_across_devices: bool, **config: Any) -> None:
        super().__init__()
        self.model = model
        self.loss = loss
        self.gather_across_devices = gather_across_devices
        self._config = {**config, "gather_across_devices": gather_across_devices}
        self._said: set[str] = set()

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> Tensor:
        """The loss of a batch, given the tokens of its columns, and its label column if there is one."""
        columns = list(sentence_features)
        if len(columns) < self.least_columns:
            names = ["anchor", "positive", "negative"][: self.least_columns]
            raise ValueError(f"{type(self).__name__} got {len(columns)} columns of texts: it needs {', '.join(names)}")
        ids = self._ids(columns)  # first, so that a GPU has not yet begun with the vectors
        vectors = [self.model(features)["sentence_embedding"] for features in columns]
        return self.compute_loss_from_embeddings(vectors, labels, ids)

    def compute_loss_from_embeddings(
        self, embeddings: list[Tensor], labels: Tensor | None = None, ids: list[Tensor] | None = None
    ) -> Tensor:
        """The loss of vectors, one (B, d) tensor for each column, and of the hashes of their texts."""
        if self.gather_across_devices:
            embeddings = [_gathered(vectors) for vectors in embeddings]
            labels = None if labels is None else _gathered(labels)
        queries, positives, *others = embeddings
        negatives = torch.stack(others, 1) if others else queries.new_empty(len(queries), 0, queries.shape[1])
        loss: Tensor = self.loss(queries, positives, negatives, **self._also(labels, negatives, ids))
        return loss

    def _also(self, labels: Tensor | None, negatives: Tensor, ids: list[Tensor] | None) -> dict[str, Any]:
        """What our loss takes besides the vectors."""
        if labels is not None:
            self._say_once(f"{type(self).__name__} does not use the label column of the data set")
        if ids is None:
            return {}
        size = len(negatives)
        return {"ids": (ids[0], ids[1], torch.stack(ids[2:], 1) if ids[2:] else ids[0].new_empty(size, 0))}

    def _ids(self, columns: list[Features]) -> list[Tensor] | None:
        """A hash of each text, (B,) for each column, on the CPU; None if texts are not to be told apart."""
        if "ids" not in getattr(self.loss, "takes", ()):
            return None
        ids = [text_hashes(features) for features in columns]
        if any(column is None for column in ids):
            self._say_once("the tokens of these inputs are not known: equal texts count as negatives of each other")
            return None
        known = [column for column in ids if column is not None]
        return [(_gathered(column) if self.gather_across_devices else column).cpu() for column in known]

    def _say_once(self, message: str) -> None:
        if message not in self._said:
            self._said.add(message)
            log.warning("%s (said once)", message)

    def get_config_dict(self) -> dict[str, Any]:
        """The arguments, for the model card."""
        return dict(self._config)

    @property
    def citation(self) -> str:
        """What to cite, for the model card."""
        return PAPER


class SoftmaxMarginLoss(_Loss):
    """`remargin.SoftmaxMarginLoss` for `SentenceTransformerTrainer`: the paper's margins inside a softmax.

    There is no temperature and no margin to tune. Each query is contrasted with all positives and negatives of the
    batch, so a large batch helps. A query with fewer than 8 documents to be compared with gets a fixed temperature.

    Args:
        model: the `SentenceTransformer` to train.
        margin_weight, spread, stop_gradient: as for `remargin.SoftmaxMarginLoss`; a running spread is refused,
            because the trainer saves no state of a loss.
        mask_known: leave out documents that the batch itself shows to be relevant, by texts of the same tokens.
        gather_across_devices: contrast with the batches of all processes. Each of them computes the loss of the whole
            batch, so that the averaged gradients are those of one process with that batch.

    Example:
        >>> from sentence_transformers import SentenceTransformer
        >>> model = SentenceTransformer(str(model_folder), device="cpu")
        >>> loss = SoftmaxMarginLoss(model)                          # SentenceTransformerTrainer(..., loss=loss)
        >>> columns = [["how", "what"], ["the query", "a test"], ["a file", "the text"]]
        >>> loss([model.preprocess(texts) for texts in columns], labels=None).ndim
        0
    """

    def __init__(
        self,
        model: nn.Module,
        margin_weight: float = softmax_margin.MARGIN_WEIGHT,
        spread: Literal["row", "batch"] = "row",
        stop_gradient: bool = True,
        mask_known: bool = True,
        gather_across_devices: bool = False,
    ) -> None:
        check_one_of("spread", spread, ("row", "batch"))
        loss = softmax_margin.SoftmaxMarginLoss(margin_weight, spread, stop_gradient, mask_known=mask_known)
        config = {"margin_weight": margin_weight, "spread": spread, "stop_gradient": stop_gradient}
        super().__init__(model, loss, gather_across_devices, **config, mask_known=mask_known)


class ContrastiveLoss(_Loss):
    """`remargin.ContrastiveLoss` for `SentenceTransformerTrainer`: `MultipleNegativesRankingLoss` with `mask_known`.

    Args:
        model: the `SentenceTransformer` to train.
        temperature: divides the similarities; 1 / scale of sentence-transformers.
        similarity: "cosine" or "dot".
        mask_known, gather_across_devices: as for `SoftmaxMarginLoss`.

    Example:
        >>> from sentence_transformers import SentenceTransformer
        >>> model = SentenceTransformer(str(model_folder), device="cpu")
        >>> loss = ContrastiveLoss(model, temperature=0.02)
        >>> loss.get_config_dict()["temperature"]
        0.02
    """

    def __init__(
        self,
        model: nn.Module,
        temperature: float = 0.05,
        similarity: Similarity = "cosine",
        mask_known: bool = True,
        gather_across_devices: bool = False,
    ) -> None:
        loss = contrastive.ContrastiveLoss(temperature, similarity=similarity, mask_known=mask_known)
        config = {"temperature": temperature, "similarity": similarity, "mask_known": mask_known}
        super().__init__(model, loss, gather_across_devices, **config)

    @property
    def citation(self) -> str:
        """What to cite, for the model card."""
        return INFO_NCE


class MarginLoss(_Loss):
    """`remargin.MarginLoss` for `SentenceTransformerTrainer`: the paper's losses, static margins, and a teacher's.

    It needs negatives. With target="teacher", the label column (label, labels, score or scores) has, as for
    `MarginMSELoss`, the teacher's margin of each negative, or its scores of the positive and of each negative.

    Args:
        model: the `SentenceTransformer` to train.
        target, in_batch, error, similarity, stop_gradient: as for `remargin.MarginLoss`; a teacher's margins are those
            of each query's own negatives, so they refuse `in_batch`.
        gather_across_devices: as for `SoftmaxMarginLoss`.

    Example:
        >>> from sentence_transformers import SentenceTransformer
        >>> model = SentenceTransformer(str(model_folder), device="cpu")
        >>> loss = MarginLoss(model, "teacher", similarity="dot")    # the numbers of MarginMSELoss
        >>> loss.get_config_dict()["target"]
        'teacher'
    """

    least_columns = 3

    def __init__(
        self,
        model: nn.Module,
        target: float | NamedTarget = "distributed",
        in_batch: bool = False,
        error: Error = "l2",
        similarity: Similarity = "cosine",
        stop_gradient: bool = False,
        gather_across_devices: bool = False,
    ) -> None:
        if in_batch and target == "teacher":
            raise ValueError("in_batch=True: the label column has no margins of other rows' negatives; leave it out")
        loss = margin.MarginLoss(target, in_batch, error, similarity, stop_gradient)
        config = {"target": target, "in_batch": in_batch, "error": error, "similarity": similarity}
        super().__init__(model, loss, gather_across_devices, **config, stop_gradient=stop_gradient)

    def _also(self, labels: Tensor | None, negatives: Tensor, ids: list[Tensor] | None) -> dict[str, Any]:
        if self._config["target"] != "teacher":
            return super()._also(labels, negatives, ids)
        if labels is None:
            raise ValueError('target="teacher" needs a column of scores: call it "label" or "score"')
        return {"teacher_margin": teacher_margins(labels, negatives.shape[1])}


def teacher_margins(labels: Tensor, negatives: int) -> Tensor:
    """Margins, (B, k), from a label column that has margins, (B,) or (B, k), or scores, (B, k + 1).

    >>> import torch
    >>> teacher_margins(torch.tensor([[0.9, 0.2], [0.7, 0.6]]), negatives=1).tolist()
    [[0.699999988079071], [0.09999996423721313]]
    >>> teacher_margins(torch.tensor([0.7, 0.1]), negatives=1).tolist()
    [[0.699999988079071], [0.10000000149011612]]
    """
    margins = labels.unsqueeze(1) if labels.ndim == 1 else labels
    if margins.ndim == 2 and margins.shape[1] == negatives + 1:
        return margins[:, :1] - margins[:, 1:]
    if margins.ndim != 2 or margins.shape[1] != negatives:
        problem = f"give the {negatives} margins of each row, or its {negatives + 1} scores"
        raise ValueError(f"labels {tuple(labels.shape)} for {negatives} negatives: {problem}")
    return margins


def text_hashes(features: Features) -> Tensor | None:
    """A number for each text, the same for texts of the same tokens; None if the features have no tokens.

    >>> import torch
    >>> ids, mask = torch.tensor([[7, 8, 0], [8, 7, 0], [7, 8, 9]]), torch.tensor([[1, 1, 0], [1, 1, 0], [1, 1, 0]])
    >>> first, second, third = text_hashes({"input_ids": ids, "attention_mask": mask}).tolist()
    >>> first == third, first == second
    (True, False)
    """
    tokens, mask = features.get("input_ids"), features.get("attention_mask")
    if tokens is not None and "cu_seq_lens_q" in features:  # texts end to end, as for flash attention
        bounds = features["cu_seq_lens_q"].long()
        rows = torch.repeat_interleave(bounds.diff())
        positions = torch.arange(len(rows), device=rows.device) - bounds[rows]
        size, tokens = len(bounds) - 1, tokens.flatten()
    elif tokens is not None and mask is not None and tokens.ndim == 2 and tokens.shape == mask.shape:
        there = mask.bool()
        rows, positions = there.nonzero()[:, 0], (mask.long().cumsum(1) - 1)[there]
        size, tokens = len(tokens), tokens[there]
    else:
        return None
    longest = int(positions.amax()) + 1 if len(positions) else 0
    powers = torch.full((longest,), MULTIPLIER, device=tokens.device).cumprod(0)
    hashes = torch.zeros(size, dtype=torch.long, device=tokens.device)
    return hashes.index_add(0, rows, (tokens.long() + 1) * powers[positions])


def _gathered(tensor: Tensor) -> Tensor:
    """The tensors of all processes, in the order of their ranks; a gradient flows back to this process's own.

    Data-parallel training averages the gradients of the processes. Each of them computes the loss of the whole batch,
    but sends its gradient back through its own part alone: so that is multiplied with their number.
    """
    from torch import distributed

    if not (distributed.is_available() and distributed.is_initialized()):
        return tensor
    processes = distributed.get_world_size()
    own = tensor.view_as(tensor)
    if own.requires_grad:
        own.register_hook(lambda gradient: gradient * processes)
    return torch.cat(gathered(own))
