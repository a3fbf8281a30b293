"""A balancing loss in a plain PyTorch loop: count the labels, build the loss, call it.

Run: python examples/plain_pytorch.py
"""

from __future__ import annotations

import torch
from torch import Tensor

from longtail import LabelStats, build_loss


def make_data(n_documents: int = 512, n_features: int = 32, n_labels: int = 12) -> list[Tensor]:
    """Features and 0/1 labels; later labels are rarer."""
    torch.manual_seed(0)
    features = torch.randn(n_documents, n_features)
    scores = features @ torch.randn(n_features, n_labels) / n_features**0.5
    return [features, (scores > torch.linspace(0.3, 2.2, n_labels)).float()]


def main() -> None:
    features, labels = make_data()
    stats = LabelStats.from_matrix(labels.numpy())
    print("documents per label:", stats.label_counts.astype(int).tolist())

    model = torch.nn.Linear(features.shape[1], labels.shape[1])
    # batchmean: the learning rate does not depend on the number of labels.
    loss_function = build_loss("db", stats, reduction="batchmean")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)

    losses = []
    for _ in range(15):
        for batch in torch.randperm(len(features)).split(64):
            loss = loss_function(model(features[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    print(f"first loss {losses[0]:.4f}, last loss {losses[-1]:.4f}")

    with torch.no_grad():
        predicted = model(features) > 0
    recall = (predicted & labels.bool()).sum(dim=0) / labels.sum(dim=0)
    print(f"recall of the rarest label {recall[labels.sum(dim=0).argmin()]:.2f}")


if __name__ == "__main__":
    main()
