"""Our loss in sentence-transformers' trainer: your script, your data and your logging stay as they are.

A loss of sentence-transformers gets the tokens of each column, encodes them with its model, and returns a scalar. The
seven lines of `AdaptiveMargins` are all that is between it and our loss. In-batch candidates that repeat a text are
contrasted with themselves here, so ask the trainer for batches without duplicates.
"""

from collections.abc import Iterable

import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from torch import Tensor

from remargin import SoftmaxMarginLoss
from remargin.model.folder import local_folder

MODEL = "minilm"
STEPS = 20


class AdaptiveMargins(torch.nn.Module):
    """The softmax loss over the embeddings of three columns: query, positive, negative."""

    def __init__(self, model: SentenceTransformer) -> None:
        super().__init__()
        self.model, self.loss = model, SoftmaxMarginLoss()

    def forward(self, features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        """Encode the columns, and compare."""
        queries, positives, negatives = (self.model(column)["sentence_embedding"] for column in features)
        return self.loss(queries, positives, negatives)


towns = ["Paris", "Rome", "Oslo", "Lima", "Cairo", "Delhi", "Tokyo", "Quito", "Riga", "Sofia", "Tunis", "Hanoi"]
data = Dataset.from_dict(
    {
        "query": [f"what do people eat in {town}?" for town in towns],
        "positive": [f"A cook from {town} shows three dishes of her childhood." for town in towns],
        "negative": [f"The mayor of {town} opened a new bridge." for town in towns],
    }
)
model = SentenceTransformer(str(local_folder(MODEL)), device="cpu")
arguments = SentenceTransformerTrainingArguments(
    "runs/theirs", max_steps=STEPS, per_device_train_batch_size=8, batch_sampler="no_duplicates",
    learning_rate=2e-5, logging_steps=5, report_to="none", save_strategy="no", use_cpu=True,
)  # fmt: skip
trainer = SentenceTransformerTrainer(model, arguments, data, loss=AdaptiveMargins(model))
print(f"loss {trainer.train().training_loss:.4f}")
model.save_pretrained("runs/theirs/model")  # remargin's commands take this folder as --model
