"""A loss of your own in remargin's training loop.

`train` takes any module whose `forward` has the arguments queries, positives and negatives, three (B, d) tensors. All
the rest stays: mining, token stores, batches without padding, checkpoints, validation.
"""

import torch
from torch import Tensor

from remargin import BiEncoder, FitSettings, Validator, mine, prepare, train

MODEL = "minilm"
DATA = "docstrings:stdlib"
STEPS = 50


class Hinge(torch.nn.Module):
    """The oldest margin loss: nothing is wrong once the margin is reached."""

    def __init__(self, margin: float = 0.2) -> None:
        super().__init__()
        self.margin = margin

    def forward(self, queries: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """The mean over the batch's triplets."""
        margins = torch.cosine_similarity(queries, positives) - torch.cosine_similarity(queries, negatives)
        return torch.relu(self.margin - margins).mean()

    def extra_repr(self) -> str:
        """Shows all arguments: a training run that is resumed compares them."""
        return f"margin={self.margin}"


mine(DATA, "mined.tsv", triplets=4)
prepare(DATA, MODEL, "prepared", "mined.tsv", document_length=128)
settings = FitSettings.preset(steps=STEPS, batch_size=32, learning_rate=5e-5)
validator = Validator("prepared", "dev", settings)
model = BiEncoder.from_pretrained(MODEL, document_length=128)
trained = train(model, "prepared", "runs/hinge", loss=Hinge(), settings=settings, validator=validator)
for validation in trained.validations:
    print(validation)
print(f"trained for {trained.steps} steps: {trained.model}")
