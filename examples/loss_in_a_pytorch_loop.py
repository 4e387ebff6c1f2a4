"""Only the loss: a plain PyTorch loop around a Hugging Face model, without anything else of remargin.

The loss takes three tensors of embeddings and returns a scalar. It knows nothing of models, files or devices. There is
no temperature and no margin to choose. A few pairs of sentences stand for a data loader.
"""

import torch
from transformers import AutoModel, AutoTokenizer

from remargin import SoftmaxMarginLoss
from remargin.model.folder import local_folder

MODEL = "minilm"
STEPS = 20

folder = local_folder(MODEL)  # a Hugging Face name would do as well
tokenizer, encoder = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).train()


def encode(texts: list[str]) -> torch.Tensor:
    """Mean pooling, as all-MiniLM-L6-v2 wants it. The loss normalises."""
    tokens = tokenizer(texts, padding=True, truncation=True, max_length=128, return_tensors="pt")
    hidden = encoder(**tokens).last_hidden_state
    mask = tokens["attention_mask"].unsqueeze(2)
    return (hidden * mask).sum(1) / mask.sum(1)


towns = ["Paris", "Rome", "Oslo", "Lima", "Cairo", "Delhi", "Tokyo", "Quito", "Riga", "Sofia", "Tunis", "Hanoi"]
queries = [f"what do people eat in {town}?" for town in towns]
positives = [f"A cook from {town} shows three dishes of her childhood." for town in towns]
negatives = [f"The mayor of {town} opened a new bridge." for town in towns]

loss = SoftmaxMarginLoss()
optimizer = torch.optim.AdamW(encoder.parameters(), lr=2e-5)
for step in range(STEPS):
    value = loss(encode(queries), encode(positives), encode(negatives))
    optimizer.zero_grad()
    value.backward()
    optimizer.step()
    if step % 5 == 0:
        print(f"step {step}: loss {value.item():.4f}")

with torch.no_grad():
    seen = loss.statistics(encode(queries), encode(positives), encode(negatives))
print(f"margins {seen.margin_mean:.3f}, targets {seen.target_mean:.3f}, temperature {seen.temperature:.3f}")
