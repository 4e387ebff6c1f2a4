"""Our loss in sentence-transformers' trainer: your script, your data and your logging stay as they are.

The loss takes pairs, or one or more negatives beside them. There is no temperature and no margin to choose. It leaves
out documents of the batch that are the query's own answer again, by their texts.
"""

from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments

from remargin.integrations.sentence_transformers import SoftmaxMarginLoss
from remargin.model.folder import local_folder

MODEL = "minilm"
STEPS = 20

towns = ["Paris", "Rome", "Oslo", "Lima", "Cairo", "Delhi", "Tokyo", "Quito", "Riga", "Sofia", "Tunis", "Hanoi"]
data = Dataset.from_dict(
    {
        "anchor": [f"what do people eat in {town}?" for town in towns],
        "positive": [f"A cook from {town} shows three dishes of her childhood." for town in towns],
        "negative": [f"The mayor of {town} opened a new bridge." for town in towns],
    }
)
model = SentenceTransformer(str(local_folder(MODEL)), device="cpu")
arguments = SentenceTransformerTrainingArguments(
    "runs/theirs", max_steps=STEPS, per_device_train_batch_size=12, learning_rate=2e-5, logging_steps=5,
    report_to="none", save_strategy="no", use_cpu=True,
)  # fmt: skip
trainer = SentenceTransformerTrainer(model, arguments, data, loss=SoftmaxMarginLoss(model))
print(f"loss {trainer.train().training_loss:.4f}")
model.save_pretrained("runs/theirs/model")  # remargin's commands take this folder as --model
