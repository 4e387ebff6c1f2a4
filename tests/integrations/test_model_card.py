"""The model card: what it says of a training run, what it leaves out, and that others can read it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import ModelCard

from remargin import BiEncoder
from remargin.errors import InputError
from remargin.evaluation.significance import Interval
from remargin.integrations.int8 import Cost, Int8, Speeds
from remargin.integrations.model_card import model_card, shareable, training_run

from .conftest import ASKED, SECRET, MakeRun


def card_of(folder: Path, **options: Any) -> str:
    return model_card(BiEncoder.from_pretrained(folder), "ada/faq", training_run(folder), **options)


def test_a_card_says_what_the_training_run_says(make_run: MakeRun) -> None:
    card = card_of(make_run())
    for line in (
        "Fine-tuned from `sentence-transformers/all-MiniLM-L6-v2` on `pairs:faq.csv` with remargin.",
        "- Data: `pairs:faq.csv` (1,234 training pairs, 1,000 training queries, 5,000 documents, 70 dev "
        "queries, 200 test queries).",
        "- Loss: `SoftmaxMarginLoss(",
        "- 300 steps, 38,400 triplets (batch_size `128`, learning_rate `2e-05`).",
        "- Blended: 0.5 x trained + 0.5 x starting weights, chosen on 70 dev queries",
        "- Weight of this model in a fusion with BM25, chosen on dev: 0.4.",
        "200 test queries, ranked in full (5,000 documents), means with 95% intervals:",
        "| BM25 | 0.400 (0.350 to 0.450) | 0.400 (0.350 to 0.450) |",
        "| this model, fused with BM25 | 0.650 (0.600 to 0.700) |",
        "| gain of training, paired | 0.100 (0.050 to 0.150) |",
        "Elsewhere, on texts that training had nothing to do with (scifact, 300 queries): nDCG@10 0.600 before, 0.550",
        '- Queries: at most 64 tokens, after the prompt `` "query: `x` " ``.',
        "- Documents: at most 64 tokens, without a prompt.",
        "1.0% of the documents that it was trained on are longer.",
        "doi       = {10.1145/3731120.3744594}",
        "remargin 0.1.0\n",
    ):
        assert line in card, line
    assert "private" not in card
    assert SECRET not in card
    assert "secret" not in card


def test_the_hub_reads_its_front_matter(make_run: MakeRun) -> None:
    data = ModelCard(card_of(make_run())).data
    assert (data.library_name, data.pipeline_tag) == ("sentence-transformers", "sentence-similarity")
    assert data.base_model == "sentence-transformers/all-MiniLM-L6-v2"
    assert data.eval_results is not None
    values = {result.metric_type: result.metric_value for result in data.eval_results}
    assert values == {"nDCG@10": 0.6, "RR": 0.6}
    assert data.eval_results[0].dataset_name == "pairs:faq.csv, test split"


@pytest.mark.parametrize("model", ["models/minilm", f"{SECRET}/minilm"])
def test_a_folder_to_start_from_is_no_name_of_the_hub(make_run: MakeRun, model: str) -> None:
    card = card_of(make_run(asked={**ASKED, "model": model}, sha256={"model/model.safetensors": "0" * 64}))
    assert "Fine-tuned from `minilm` on" in card
    assert "base_model" not in card


def test_what_is_not_known_is_left_out(make_run: MakeRun, tiny_encoder: Any) -> None:
    folder = make_run()
    run = training_run(folder)
    assert run is not None
    for name in ("outcome", "away", "fusion", "data"):
        del run.report[name]  # type: ignore[misc]
    card = model_card(BiEncoder.from_pretrained(folder), "ada/faq", run._replace(path=None))
    assert "## Results" not in card
    assert "BM25" not in card
    assert "model-index" not in card
    assert "Weight of the trained weights in the model: 0.5." in card
    assert training_run(tiny_encoder()) is None
    short = card_of(tiny_encoder())
    assert "Nothing is known here of its training" in short
    for word in ("## Training", "## Results", "Citation", "remargin 0.1.0", "base_model"):
        assert word not in short


def test_starting_weights_are_called_that(make_run: MakeRun) -> None:
    assert "these are the starting weights, unchanged" in card_of(make_run({"weight": 0.0}))


def test_another_model_of_the_run_has_no_figures(make_run: MakeRun) -> None:
    folder = make_run()
    folder.rename(folder.parent / "last")
    assert training_run(folder.parent / "last") is None


def test_a_model_that_was_changed_is_refused(make_run: MakeRun) -> None:
    folder = make_run()
    (folder / "modules.json").write_text((folder / "modules.json").read_text() + " ")
    with pytest.raises(InputError, match=r"modules\.json: .*export the model as `fit` wrote it"):
        training_run(folder)


def test_markup_and_control_characters_stay_text(make_run: MakeRun) -> None:
    card = card_of(make_run(asked={**ASKED, "data": "pairs:x`<b>\x1b[31m|.csv"}))
    assert "\x1b" not in card
    assert "`` pairs:x`<b>\\x1b[31m|.csv ``" in card
    front = yaml.safe_load(card.split("---")[1])
    assert front["model-index"][0]["results"][0]["dataset"]["name"].startswith("pairs:x`<b>")


def test_int8_is_in_the_card(tiny_encoder: Any) -> None:
    cost = Cost("faq.csv", "test", 100, 2000, 0.61, 0.6, Interval(-0.01, -0.02, 0.001))
    card = card_of(tiny_encoder(), onnx=True, int8=Int8(0.25, Speeds(10, 20, 40, 64, 2), cost))
    assert "`model.onnx` has pooling and normalisation inside" in card
    assert "nDCG@10 0.610 to 0.600 (-0.010, -0.020 to 0.001)" in card
    assert "40 int8 (4.00x; 2.00x ONNX)" in card


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("/home/ada/data/faq/", "faq"),
        ("../faq", "faq"),
        (".", "a folder"),
        ("pairs:~/faq.tsv", "pairs:faq.tsv"),
        ("/home/ada/.cache/hub/models--intfloat--e5-base/snapshots/0a1b", "intfloat/e5-base"),
        ("faq, the second", "faq, the second"),
    ],
)
def test_names_lose_their_folders(name: str, told: str) -> None:
    assert shareable(name) == told
