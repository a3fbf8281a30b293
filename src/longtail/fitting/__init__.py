"""Fitting: one model with a validation part, or several that each leave out a fold; blends."""

from longtail.fitting.blend import blend_weights, fit
from longtail.fitting.crossfit import Fitted
from longtail.fitting.ensemble import Ensemble
from longtail.fitting.plan import Plan, fingerprint
from longtail.fitting.work import Work

__all__ = ["Ensemble", "Fitted", "Plan", "Work", "blend_weights", "fingerprint", "fit"]
