"""Writes docs/losses.md from the table LOSSES and the docstrings of its modules.

    python docs/make_losses.py

A test compares the file with what this makes, so the two cannot drift apart.
"""

from __future__ import annotations

import inspect
from pathlib import Path

from longtail.losses import CONSTANTS, LOSSES, BalancedLoss, LossRow, MultiLabelLoss

TARGET = Path(__file__).with_name("losses.md")

INTRODUCTION = """\
# The losses

Made from `longtail.losses.LOSSES` by `python docs/make_losses.py`; edit there.

Every loss is a `torch.nn.Module` made by name and called on raw logits:

```python
import torch

from longtail import LabelStats, build_loss

stats = LabelStats.from_lists([["copper"], ["copper", "nickel"]])  # labels of training documents
loss = build_loss("db", stats, reduction="batchmean")  # or .from_matrix(Y), .from_counts(counts, n)
logits, target = torch.zeros(1, 2, requires_grad=True), torch.tensor([[1.0, 0.0]])
loss(logits, target, mask=None, sample_weight=None).backward()
```

In the formulas z is the logit, p = sigmoid(z), y the target, n the number of training documents
with the label, N that of all training documents; g is gamma, r_CB = (1-cb_beta) / (1-cb_beta^n)
the class-balanced weight, r_DB = alpha + sigmoid(beta (r - mu)) the rebalanced one with
r = (1/n) / (sum of 1/n over the document's labels), v = kappa log(N/n - 1) the negative-tolerant
shift, l is lambda. A bar separates the cost of a label that applies from that of one that does not.

## Your data, which loss

| your data | loss |
|---|---|
"""

EDGES = """\
## What is defined at the edges

- A label without a training document counts as half a document, a label on every document as N
  minus half a document in the shift of NTR and of `logit-adjusted`.
- A document without labels has a rebalanced weight of alpha + 1, the limit of the formula.
- A masked element neither counts nor gets gradient, whatever its logit and target are; `mean`
  divides by the known elements, `batchmean` by the documents with at least one.
- An empty batch has a loss of 0.
- `batchmean` sums over labels and averages over documents. `mean` also divides by the number of
  labels, so the best learning rate would change with the label set.
- Half-precision logits are computed in float32, and the loss is float32; the gradient has the type
  of the logits.
- `mu="auto"` is (mean(r) + median(r)) / 2 over all pairs of a training document and one of its
  labels, r = (1/n_i) / (sum of 1/n_j over the document's labels). Where only counts are known it
  is the mean of r, n_samples / total count.
- For `zlpr` and `dice`, which have one term per document, `mean` is `batchmean` and `none` has the
  shape (documents,); for `two-way` see there.
- Targets out of [0, 1], and sparse ones that point outside the batch, raise an error, but under
  torch.compile and in CUDA graphs, where a check of values cannot raise, they are not looked at.
- A NaN logit that counts makes the loss NaN; so may an infinite one, or one beyond 1e18.
- Targets get no gradient: those that require one raise an error.
- The rows of `BalancedLoss` have an analytic gradient that needs one logit-sized buffer, and no
  second derivative but with `reduction="none"`.
"""


def render() -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    parts += [f"| {row.when} | [`{name}`](#{name}) |\n" for name, row in LOSSES.items()]
    parts.append("\n## The table\n\n| loss | weight | focal | NTR | constants | paper |\n")
    parts.append("|---|---|---|---|---|---|\n")
    parts += [_table_row(name, row) for name, row in LOSSES.items()]
    parts.append("\n" + _published_constants() + "\n" + EDGES + "\n## One by one\n")
    parts += [_section(name, row) for name, row in LOSSES.items()]
    modules = dict.fromkeys([MultiLabelLoss, *(row.module for row in LOSSES.values())])
    parts.append("\n## The modules\n")
    parts += [_module(module) for module in modules]
    return "".join(parts)


def _table_row(name: str, row: LossRow) -> str:
    constants = row.constants
    family = row.module is BalancedLoss
    weight = constants["weighting"] if family else "-"
    focal = ("yes" if constants["gamma"] else "no") if family else "-"
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
