"""Fitting: one model with a validation part, or several that each leave out a fold."""

from longtail.fitting.crossfit import Fitted, fit
from longtail.fitting.ensemble import Ensemble
from longtail.fitting.plan import Plan
from longtail.fitting.work import Work

__all__ = ["Ensemble", "Fitted", "Plan", "Work", "fit"]
