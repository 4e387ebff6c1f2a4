"""Our losses in sentence-transformers: the numbers and gradients of our own engine, and a real trainer that learns."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import remargin
from remargin import BiEncoder, FitSettings
from remargin.integrations import sentence_transformers as ours
from remargin.integrations.sentence_transformers import ContrastiveLoss, MarginLoss, SoftmaxMarginLoss, text_hashes
from remargin.training.engine import Engine

Columns = list[list[str]]

# Their loss, and ours as it is.
PAIRED: dict[str, tuple[Callable[[Any], Any], nn.Module]] = {
    "softmax": (SoftmaxMarginLoss, remargin.SoftmaxMarginLoss()),
    "softmax, batch": (
        lambda model: SoftmaxMarginLoss(model, 0.25, spread="batch", stop_gradient=False, mask_known=False),
        remargin.SoftmaxMarginLoss(0.25, spread="batch", stop_gradient=False, mask_known=False),
    ),
    "contrastive": (lambda model: ContrastiveLoss(model, 0.1), remargin.ContrastiveLoss(0.1)),
    "contrastive, unmasked": (
        lambda model: ContrastiveLoss(model, similarity="dot", mask_known=False),
        remargin.ContrastiveLoss(similarity="dot", mask_known=False),
    ),
    "distributed": (MarginLoss, remargin.MarginLoss()),
    "adaptive": (
        lambda model: MarginLoss(model, "adaptive", in_batch=True, error="softplus"),
        remargin.MarginLoss("adaptive", in_batch=True, error="softplus"),
    ),
    "mean": (
        lambda model: MarginLoss(model, "mean", stop_gradient=True),
        remargin.MarginLoss("mean", stop_gradient=True),
    ),
    "static": (lambda model: MarginLoss(model, 0.3, similarity="dot"), remargin.MarginLoss(0.3, similarity="dot")),
    "teacher": (lambda model: MarginLoss(model, "teacher"), remargin.MarginLoss("teacher")),
}


def sentence_transformer(folder: Path) -> Any:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu")


def own_loop(folder: Path, columns: Columns, loss: nn.Module, scores: Tensor | None) -> tuple[float, dict[str, Tensor]]:
    """The loss and the gradients that our own engine computes, from texts whose ids are their numbers."""
    model, size = BiEncoder.from_pretrained(folder, device="cpu"), len(columns[0])
    texts = [*columns[0], *columns[1], *(text for row in zip(*columns[2:], strict=True) for text in row)]
    tokens, truncated = model.tokenizer(texts, 64)
    assert not truncated
    numbers = {text: number for number, text in enumerate(texts)}
    ids = torch.tensor([numbers[text] for text in texts])
    also: dict[str, Any] = {}
    takes = getattr(loss, "takes", ())
    if "ids" in takes:
        also["ids"] = ids[:size], ids[size : 2 * size], ids[2 * size :].reshape(size, -1)
    if "teacher_margin" in takes:
        assert scores is not None
        also["teacher_margin"] = scores[:, :1] - scores[:, 1:]
    settings = FitSettings.preset(steps=1, engine="packed")
    with Engine(model, settings, torch.device("cpu"), torch.float32, tokens.lengths) as engine:
        with engine.embed(engine.split(tokens)) as vectors:
            q, p, n = vectors.split([size, size, len(texts) - 2 * size])
            value = loss(q, p, n.reshape(size, -1, n.shape[1]), **also)
            value.backward()
        gradients = {name: w.grad.clone() for name, w in model.backbone.named_parameters() if w.grad is not None}
    return float(value.detach()), gradients


def theirs(loss: Any, columns: Columns, labels: Tensor | None = None) -> tuple[float, dict[str, Tensor]]:
    """The loss and the gradients that a loss of sentence-transformers' shape computes."""
    model = loss.model
    value = loss([model.preprocess(column) for column in columns], labels)
    value.backward()
    of_encoder = model[0].auto_model.named_parameters()
    return float(value.detach()), {name: weight.grad.clone() for name, weight in of_encoder if weight.grad is not None}


def assert_same(one: tuple[float, dict[str, Tensor]], other: tuple[float, dict[str, Tensor]]) -> None:
    assert one[0] == pytest.approx(other[0], rel=1e-5)
    assert set(one[1]) == set(other[1])
    assert len(one[1]) > 30
    largest = max(float(gradient.abs().max()) for gradient in other[1].values())
    assert largest > 1e-4
    for name, gradient in one[1].items():
        torch.testing.assert_close(gradient, other[1][name], rtol=1e-3, atol=1e-5 * largest, msg=name)


@pytest.mark.parametrize("negatives", [0, 1, 3])
@pytest.mark.parametrize("name", PAIRED)
def test_numbers_and_gradients_are_those_of_our_own_engine(
    name: str, negatives: int, still_model: Path, rows: list[list[str]]
) -> None:
    make, own = PAIRED[name]
    columns = [list(column) for column in zip(*rows, strict=True)][: 2 + negatives]
    if negatives == 0 and isinstance(own, remargin.MarginLoss):
        with pytest.raises(ValueError, match="MarginLoss got 2 columns of texts: it needs anchor, positive, negative"):
            theirs(make(sentence_transformer(still_model)), columns)
        return
    scores = torch.rand(len(rows), 1 + negatives, generator=torch.Generator().manual_seed(1))
    labels = scores if name == "teacher" else None
    assert_same(
        theirs(make(sentence_transformer(still_model)), columns, labels), own_loop(still_model, columns, own, scores)
    )


@pytest.mark.parametrize("make", [SoftmaxMarginLoss, ContrastiveLoss])
def test_equal_texts_are_masked_by_their_tokens(make: Any, still_model: Path, rows: list[list[str]]) -> None:
    """With masking, rows with equal texts count as our ids say; without, and where no texts are equal, as they are."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    masked, unmasked = (
        theirs(make(sentence_transformer(still_model), mask_known=known), columns)[0] for known in (True, False)
    )
    assert masked != pytest.approx(unmasked, rel=1e-3)
    distinct = [[f"{text} {n}" for n, text in enumerate(column)] for column in columns]
    masked, unmasked = (
        theirs(make(sentence_transformer(still_model), mask_known=known), distinct)[0] for known in (True, False)
    )
    assert masked == unmasked


def test_the_contrastive_loss_is_theirs(still_model: Path, rows: list[list[str]]) -> None:
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    for columns in ([list(c) for c in zip(*rows, strict=True)][:width] for width in (2, 3, 5)):
        mine = ContrastiveLoss(sentence_transformer(still_model), mask_known=False)
        assert_same(
            theirs(mine, columns), theirs(MultipleNegativesRankingLoss(sentence_transformer(still_model)), columns)
        )


@pytest.mark.parametrize(("negatives", "shape"), [(1, (12,)), (1, (12, 1)), (1, (12, 2)), (3, (12, 3)), (3, (12, 4))])
def test_the_teachers_column_is_read_as_they_read_it(
    negatives: int, shape: tuple[int, ...], still_model: Path, rows: list[list[str]]
) -> None:
    from sentence_transformers.sentence_transformer.losses import MarginMSELoss

    columns = [list(column) for column in zip(*rows, strict=True)][: 2 + negatives]
    labels = torch.rand(shape, generator=torch.Generator().manual_seed(2))
    mine = MarginLoss(sentence_transformer(still_model), "teacher", similarity="dot")
    assert_same(
        theirs(mine, columns, labels), theirs(MarginMSELoss(sentence_transformer(still_model)), columns, labels)
    )


def test_what_does_not_fit_is_said(still_model: Path, rows: list[list[str]], caplog: pytest.LogCaptureFixture) -> None:
    model = sentence_transformer(still_model)
    columns = [list(column) for column in zip(*rows, strict=True)][:3]
    with pytest.raises(ValueError, match="needs a column of scores"):
        theirs(MarginLoss(model, "teacher"), columns)
    with pytest.raises(ValueError, match=r"labels \(12, 5\) for 1 negatives: give the 1 margins of each row, or its 2"):
        theirs(MarginLoss(model, "teacher"), columns, torch.rand(12, 5))
    with pytest.raises(ValueError, match="no margins of other rows"):
        MarginLoss(model, "teacher", in_batch=True)
    with pytest.raises(ValueError, match="spread='running'"):
        SoftmaxMarginLoss(model, spread="running")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="got 1 columns of texts: it needs anchor, positive"):
        theirs(SoftmaxMarginLoss(model), columns[:1])
    loss = SoftmaxMarginLoss(model)
    with caplog.at_level(logging.WARNING, "remargin"):
        for _ in range(2):
            theirs(loss, columns, torch.rand(12))
    assert caplog.text.count("SoftmaxMarginLoss does not use the label column") == 1


def test_hashes_are_of_tokens_alone() -> None:
    """Padded left or right, or packed end to end as for flash attention: a text has one hash."""
    from transformers import DataCollatorWithFlattening

    texts = [[5, 6, 7], [5, 6], [6, 5], [5, 6, 0], [5, 6, 7]]
    longest = 4
    right = torch.tensor([text + [0] * (longest - len(text)) for text in texts])
    left = torch.tensor([[0] * (longest - len(text)) + text for text in texts])
    lengths = torch.tensor([len(text) for text in texts])
    mask = (torch.arange(longest) < lengths[:, None]).long()
    flat = DataCollatorWithFlattening(return_flash_attn_kwargs=True, return_seq_idx=True)
    packed = flat([{"input_ids": text} for text in texts])
    of_right = text_hashes({"input_ids": right, "attention_mask": mask})
    assert of_right is not None
    assert of_right[0] == of_right[4]
    assert len(of_right.unique()) == 4
    for features in ({"input_ids": left, "attention_mask": mask.flip(1)}, packed):
        assert torch.equal(text_hashes(features), of_right)  # type: ignore[arg-type]
    assert text_hashes({"pixel_values": torch.zeros(2, 3)}) is None
    many = torch.from_numpy(np.random.default_rng(0).integers(0, 30_000, (50_000, 6)))
    hashes = text_hashes({"input_ids": many, "attention_mask": torch.ones_like(many)})
    assert hashes is not None
    assert len(hashes.unique()) == len(many.unique(dim=0))


@pytest.mark.parametrize("columns", [2, 3, 5])
def test_a_real_trainer_learns_with_it(columns: int, still_model: Path, rows: list[list[str]], tmp_path: Path) -> None:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments

    model = sentence_transformer(still_model)
    names = ["anchor", "positive", "negative_1", "negative_2", "negative_3"][:columns]
    data = Dataset.from_dict(dict(zip(names, map(list, zip(*rows, strict=True)), strict=False)))
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(tmp_path / "out"), max_steps=12, per_device_train_batch_size=12, learning_rate=1e-3,
        logging_steps=1, report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True, warmup_steps=0,
        dataloader_pin_memory=False,
    )  # fmt: skip
    trainer = SentenceTransformerTrainer(model=model, args=arguments, train_dataset=data, loss=SoftmaxMarginLoss(model))
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(losses) == 12
    assert losses[-1] < losses[0] / 2
    model.save_pretrained(str(tmp_path / "model"))
    card = (tmp_path / "model" / "README.md").read_text()
    assert '"margin_weight": 0.5' in card
    assert "SoftmaxMarginLoss" in card
    assert "gienapp2025learning" in card
    vectors = BiEncoder.from_pretrained(tmp_path / "model", device="cpu").encode_queries(["how adapt"])
    np.testing.assert_allclose(vectors, model.encode(["how adapt"]), atol=1e-5)


def process(rank: int, port: int, folder: Path, columns: Columns, scores: Tensor, out: Path) -> None:
    """One of two processes, each with half of the rows: writes losses, and gradients averaged as DDP averages them."""
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
    results = []
    half = [column[rank::2] for column in columns]
    for name, make in [*((name, make) for name, (make, _) in PAIRED.items()), ("theirs", MultipleNegativesRankingLoss)]:
        loss = make(sentence_transformer(folder))
        loss.gather_across_devices = True
        model, module = loss.model, loss.model[0].auto_model
        loss.model = nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)  # as their trainer
        features = [dict(model.preprocess(column)) for column in half]
        value = loss(features, scores[rank::2] if name == "teacher" else None)
        value.backward()
        gradients = {key: weight.grad.clone() for key, weight in module.named_parameters() if weight.grad is not None}
        results.append((float(value.detach()), gradients))
    torch.save(results, out / f"{rank}.pt")
    torch.distributed.destroy_process_group()


@pytest.mark.slow
def test_two_processes_have_the_gradients_of_one(still_model: Path, rows: list[list[str]], tmp_path: Path) -> None:
    import socket

    columns = [list(column) for column in zip(*rows, strict=True)]
    scores = torch.rand(len(rows), 4, generator=torch.Generator().manual_seed(3))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(process, (port, still_model, columns, scores, tmp_path), nprocs=2)
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1))
    mean = (first[-1][0] + second[-1][0]) / 2  # of their loss, whose gradients are those of the whole batch, too
    unmasked = theirs(ContrastiveLoss(sentence_transformer(still_model), mask_known=False), columns)
    for of_process in (first, second):
        assert_same((mean, of_process.pop()[1]), unmasked)
    for (name, (make, _)), one, other in zip(PAIRED.items(), first, second, strict=True):
        together = theirs(make(sentence_transformer(still_model)), columns, scores if name == "teacher" else None)
        assert_same(one, together)
        assert_same(other, together)
    assert ours._gathered(scores) is scores  # one process: nothing to gather
