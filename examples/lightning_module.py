"""A balancing loss as a submodule of a PyTorch Lightning module.

Lightning moves the loss's per-label constants to the device and stores them in the checkpoint.
Run: pip install lightning && python examples/lightning_module.py
"""

from __future__ import annotations

import lightning
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from longtail import LabelStats, build_loss


class Tagger(lightning.LightningModule):
    """One linear layer and a loss by name."""

    def __init__(self, n_features: int, stats: LabelStats, loss: str = "db") -> None:
        super().__init__()
        self.layer = torch.nn.Linear(n_features, stats.n_labels)
        self.loss = build_loss(loss, stats, reduction="batchmean")
        self.history: list[float] = []

    def training_step(self, batch: list[Tensor], _: int) -> Tensor:
        features, labels = batch
        loss = self.loss(self.layer(features), labels)
        self.history.append(loss.item())
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.02)


def main() -> None:
    lightning.seed_everything(0, verbose=False)
    features = torch.randn(512, 32)
    scores = features @ torch.randn(32, 12) / 32**0.5
    labels = (scores > torch.linspace(0.3, 2.2, 12)).float()

    model = Tagger(32, LabelStats.from_matrix(labels.numpy()))
    trainer = lightning.Trainer(
        max_epochs=15,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, DataLoader(TensorDataset(features, labels), batch_size=64, shuffle=True))
    print(f"first loss {model.history[0]:.4f}, last loss {model.history[-1]:.4f}")


if __name__ == "__main__":
    main()
