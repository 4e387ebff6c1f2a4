"""What a user of sentence-transformers writes for a CSV of questions and answers: its trainer at its own defaults.

    python benchmarks/newcomer_st.py faq.csv MODEL OUT [overview]

The trainer's defaults are batches of 8, a peak learning rate of 5e-5, linear decay and three epochs. With `overview`,
the arguments are those of the example in the documentation's training overview: one epoch, batches of 16, 2e-5, 10%
warm-up, no duplicates in a batch. benchmarks/newcomer.py runs it, and counts its lines.
"""

# -- from here on, the lines are counted
import sys

from datasets import Dataset, load_dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

file, start, out, *overview = sys.argv[1:]
data = load_dataset("csv", data_files=file)["train"].select_columns(["question", "answer"])
parts = data.train_test_split(test_size=0.1, seed=0)
model = SentenceTransformer(start)
overview_arguments = {
    "num_train_epochs": 1,
    "per_device_train_batch_size": 16,
    "learning_rate": 2e-5,
    "warmup_steps": 0.1,
    "batch_sampler": "no_duplicates",
}
arguments = SentenceTransformerTrainingArguments(
    f"{out}/trainer", save_strategy="no", report_to=[], **(overview_arguments if overview else {})
)
trainer = SentenceTransformerTrainer(
    model=model, args=arguments, train_dataset=parts["train"], loss=MultipleNegativesRankingLoss(model)
)


def evaluator(test: Dataset) -> InformationRetrievalEvaluator:
    queries = {f"q{i}": text for i, text in enumerate(test["question"])}
    documents = {f"d{i}": text for i, text in enumerate(data["answer"])}
    by_text = {text: id for id, text in documents.items()}
    relevant = {f"q{i}": {by_text[text]} for i, text in enumerate(test["answer"])}
    return InformationRetrievalEvaluator(queries, documents, relevant, ndcg_at_k=[10])


before = evaluator(parts["test"])(model)
trainer.train()
after = evaluator(parts["test"])(model)
print({name: (before[name], after[name]) for name in after if "ndcg@10" in name})
model.save_pretrained(f"{out}/model")
