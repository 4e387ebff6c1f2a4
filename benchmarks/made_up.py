"""Made-up texts, collections and encoders of real sizes, for benchmarks that need no download.

Lengths are like MS MARCO's: queries of 9 tokens on average, passages of 77, log-normal, truncated at 30 and 200.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from transformers import BertConfig, BertModel, DistilBertConfig, DistilBertModel, PreTrainedTokenizerFast

from remargin.data.preparation import Prepared, prepare
from remargin.model.encoder import PAPER_LENGTHS

Size = Literal["distilbert", "minilm"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = 30_522
QUERY, PASSAGE = (9, 0.35, 4, 30), (76, 0.45, 12, 200)  # mean, sigma of the logarithm, shortest, longest


def words() -> list[str]:
    syllables = [c + v + e for c in "bdfgklmnprstvz" for v in "aeiou" for e in ("", "l", "n", "r", "s")]
    rng = np.random.default_rng(0)
    return sorted({"".join(rng.choice(syllables, 2 + i % 2)) for i in range(2 * WORDS)})[: WORDS - len(SPECIAL)]


def tokenizer() -> PreTrainedTokenizerFast:
    """A WordPiece tokenizer, set up as BERT's, in which each made-up word is a token."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    vocabulary = {token: number for number, token in enumerate([*SPECIAL, *words()])}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])]
    )
    names = {f"{token.strip('[]').lower()}_token": token for token in SPECIAL}
    return PreTrainedTokenizerFast(tokenizer_object=made, model_max_length=512, **names)


def lengths(count: int, like: tuple[float, float, int, int], rng: np.random.Generator) -> np.ndarray:
    mean, sigma, low, high = like
    drawn = np.exp(rng.normal(math.log(mean) - sigma**2 / 2, sigma, count))
    return np.clip(drawn.round().astype(int), low, high)


def texts(count: int, like: tuple[float, float, int, int], rng: np.random.Generator) -> list[str]:
    """Texts of so many tokens, [CLS] and [SEP] included."""
    vocabulary = np.array(words())
    return [" ".join(vocabulary[rng.integers(0, len(vocabulary), n - 2)]) for n in lengths(count, like, rng)]


def save_encoder(folder: Path, size: Size) -> Path:
    """An encoder of that size with random weights, without attention dropout: so all rivals run without."""
    torch.manual_seed(0)
    if size == "distilbert":
        model: torch.nn.Module = DistilBertModel(DistilBertConfig(attention_dropout=0.0))
    else:
        config = BertConfig(
            hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536,
            attention_probs_dropout_prob=0.0,
        )  # fmt: skip
        model = BertModel(config)
    model.save_pretrained(folder)  # type: ignore[operator]
    tokenizer().save_pretrained(folder)
    return folder


def prepared(folder: Path, model: Path, documents: int, queries: int, triplets: int) -> Prepared:
    """A collection with triplets and a dev split of 43 queries, written to folder/beir and prepared in folder/data."""
    rng = np.random.default_rng(1)
    beir = folder / "beir"
    (beir / "qrels").mkdir(parents=True)
    for name, prefix, count, like in (("corpus", "d", documents, PASSAGE), ("queries", "q", queries, QUERY)):
        with open(beir / f"{name}.jsonl", "w") as file:
            for number, text in enumerate(texts(count, like, rng)):
                file.write(json.dumps({"_id": f"{prefix}{number}", "text": text}) + "\n")
    for split, of in (("dev", range(43)), ("train", range(43, queries))):
        with open(beir / "qrels" / f"{split}.tsv", "w") as file:
            file.write("query-id\tcorpus-id\tscore\n")
            file.writelines(f"q{query}\td{rng.integers(documents)}\t1\n" for query in of)
    with open(folder / "triplets.tsv", "w") as file:
        file.write("query_id\tpositive_id\tnegative_id\n")
        positives = rng.integers(0, documents, triplets)
        negatives = (positives + rng.integers(1, documents, triplets)) % documents
        rows = zip(rng.integers(43, queries, triplets), positives, negatives, strict=True)
        file.writelines(f"q{q}\td{p}\td{n}\n" for q, p, n in rows)
    return prepare(beir, model, folder / "data", folder / "triplets.tsv", *PAPER_LENGTHS)
