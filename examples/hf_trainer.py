"""A balancing loss in Hugging Face's Trainer, correct with gradient accumulation.

A tiny BERT with random weights on random token ids stands in for your model and tokenizer, so
nothing is downloaded. Run: pip install 'transformers[torch]' && python examples/hf_trainer.py
"""

from __future__ import annotations

import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from longtail import LabelStats, build_loss

N_LABELS = 6


def make_documents(n_documents: int = 192, length: int = 12) -> list[dict[str, torch.Tensor]]:
    """Token ids. A document that has token i < N_LABELS has label i; later labels are rarer."""
    torch.manual_seed(0)
    rarity = torch.cat([1 / torch.arange(2.0, N_LABELS + 2), torch.full((40,), 0.2)])
    tokens = torch.multinomial(rarity, n_documents * length, replacement=True)
    tokens = tokens.view(n_documents, length)
    labels = (tokens.unsqueeze(2) == torch.arange(N_LABELS)).any(dim=1).float()
    return [{"input_ids": t, "labels": y} for t, y in zip(tokens, labels, strict=True)]


def main() -> None:
    documents = make_documents()
    stats = LabelStats.from_matrix(torch.stack([d["labels"] for d in documents]).numpy())
    loss = build_loss("db", stats, reduction="batchmean")

    config = BertConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        num_labels=N_LABELS,
    )
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            num_train_epochs=12,
            learning_rate=5e-3,
            per_device_train_batch_size=8,
            gradient_accumulation_steps=4,
            logging_steps=6,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = Trainer(
            model=BertForSequenceClassification(config),
            args=arguments,
            train_dataset=documents,
            compute_loss_func=loss.as_hf(),
        )
        trainer.train()
    logged = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    print(f"first loss {float(logged[0]):.4f}, last loss {float(logged[-1]):.4f}")


if __name__ == "__main__":
    main()
