"""A linear head and a balanced loss in one step, without the whole matrix of logits.

One function, `linear_loss`; the chunked torch implementation is its reference and runs anywhere.
"""

from longtail.fused.reference import linear_loss

__all__ = ["linear_loss"]
