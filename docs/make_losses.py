"""Write docs/losses.md from the table LOSSES and the docstrings of its modules.

    python docs/make_losses.py

A test fails if the page is out of date.
"""

from __future__ import annotations

import inspect
from pathlib import Path

from longtail.losses import CONSTANTS, LOSSES, BalancedLoss, LossRow, MultiLabelLoss

TARGET = Path(__file__).with_name("losses.md")

INTRODUCTION = """\
# Losses

Each loss is a `torch.nn.Module`. Build it by name and call it on raw logits:

```python
import torch

from longtail import LabelStats, build_loss

stats = LabelStats.from_lists([["copper"], ["copper", "nickel"]])  # labels of training documents
loss = build_loss("db", stats, reduction="batchmean")  # or .from_matrix(Y), .from_counts(counts, n)
logits, target = torch.zeros(1, 2, requires_grad=True), torch.tensor([[1.0, 0.0]])
loss(logits, target, mask=None, sample_weight=None).backward()
```

If the head of very many labels fills the memory, use the loss
[without the logits](howto/very-many-labels.md).

"The paper" is [Huang et al., EMNLP 2021](https://aclanthology.org/2021.emnlp-main.643/). In the
formulas,

- z is the logit, p = sigmoid(z), and y the target;
- n is the number of training documents with the label, N the number of all training documents;
- r_CB = (1-cb_beta) / (1-cb_beta^n) is the class-balanced weight;
- r_DB = alpha + sigmoid(beta (r - mu)) is the rebalanced weight, with
  r = (1/n) / (sum of 1/n over the document's labels);
- v = kappa log(N/n - 1) is the shift of the negative-tolerant losses (NTR);
- g is gamma, and l is lambda;
- before the bar is the loss of a label that applies, after it the loss of one that does not.

(This page is generated from `longtail.losses.LOSSES` by `docs/make_losses.py`.)

## Your data, which loss

| your data or aim | loss |
|---|---|
"""

EDGES = """\
## Reductions, limits and special cases

- **Reductions.** `batchmean` sums over labels and averages over documents. `mean` also divides by
  the number of labels, so the best learning rate depends on the label set. `zlpr` and `dice` have
  one term per document, so `mean` equals `batchmean`, and `none` has the shape (documents,). For
  `two-way`, see [TwoWayLoss](#twowayloss).
- **Masks.** A masked element adds nothing to the loss and gets no gradient, whatever its logit and
  target. `mean` divides by the number of known elements, `batchmean` by the number of documents
  that have one.
- **Counts.** In the shift of NTR and of `logit-adjusted`, a label without training documents
  counts as half a document, and a label on every document as N minus half a document. A document
  without labels has a rebalanced weight of alpha + 1, the limit of the formula.
- **mu.** `mu="auto"` is (mean(r) + median(r)) / 2 over all pairs of a training document and one of
  its labels. If only counts are known, it is the mean of r, n_samples / total count.
- **Types.** With half-precision logits the loss is computed and returned in float32; the gradient
  has the type of the logits.
- **Targets** raise an error if they require a gradient, if they are outside [0, 1], or if sparse
  ones point outside the batch. The last two are not checked under torch.compile and CUDA graphs.
- **NaN.** A NaN logit makes the loss NaN unless it is masked; an infinite logit, or one beyond
  1e18, may do so too. An empty batch has a loss of 0.
- **Gradients.** `BalancedLoss` has an analytic gradient that needs one buffer of the size of the
  logits. It has a second derivative only with `reduction="none"`.
"""


def render() -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    parts += [f"| {row.when} | [`{name}`](#{name}) |\n" for name, row in LOSSES.items()]
    parts.append("\n## The table\n\n| loss | weight | focal | NTR | constants | paper |\n")
    parts.append("|---|---|---|---|---|---|\n")
    parts += [_table_row(name, row) for name, row in LOSSES.items()]
    parts.append("\n" + _published_constants() + "\n" + EDGES + "\n## Each loss\n")
    parts += [_section(name, row) for name, row in LOSSES.items()]
    modules = dict.fromkeys([MultiLabelLoss, *(row.module for row in LOSSES.values())])
    parts.append("\n## The modules\n")
    parts += [_module(module) for module in modules]
    return "".join(parts)


def _table_row(name: str, row: LossRow) -> str:
    constants = row.constants
    family = row.module is BalancedLoss
    weight = constants["weighting"] if family else "-"
    focal = ("yes" if constants.get("gamma") else "no") if family else "-"
    shifted = "yes" if constants.get("lambda_", 1) != 1 else "shift only"
    tolerant = (shifted if constants.get("kappa") else "no") if family else "-"
    names = {"kappa": "tau"} if name == "logit-adjusted" else {}
    shown = ", ".join(
        f"{names.get(key, key)} {value}"
        for key, value in constants.items()
        if key != "weighting" and value != 0
    )
    cells = (f"[`{name}`](#{name})", weight, focal, tolerant, shown or "none", row.paper)
    return "| " + " | ".join(cells) + " |\n"


def _published_constants() -> str:
    lines = ['`build_loss(name, stats, constants="...")` sets the constants of the paper:\n']
    lines += [
        f"- `{corpus}`: " + ", ".join(f"{key} {value:g}" for key, value in values.items())
        for corpus, values in CONSTANTS.items()
    ]
    return "\n".join(lines) + "\n"


def _section(name: str, row: LossRow) -> str:
    call = f'build_loss("{name}", stats)' if row.needs_stats else f'build_loss("{name}")'
    formula = row.formula.replace("`", "")
    return (
        f"\n### {name}\n\n{row.title[0].upper()}{row.title[1:]}. Use it for: {row.when}.\n\n"
        f"    {formula}\n\nPaper: {row.paper}. Make it with `{call}`; module "
        f"[`{row.module.__name__}`](#{row.module.__name__.lower()}).\n"
    )


def _module(module: type) -> str:
    document = inspect.cleandoc(module.__doc__ or "")
    return f"\n### {module.__name__}\n\n```text\n{document}\n```\n"


if __name__ == "__main__":
    TARGET.write_text(render(), "utf-8")
    print(f"wrote {TARGET.name}")
