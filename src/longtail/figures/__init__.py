"""Figures of labelled documents and of results: the long tail with its links, the sizes of the
documents, F1 by row and group of labels. matplotlib is imported only to draw.
"""

from longtail.figures.drawing import plot_documents, plot_labels
from longtail.figures.results import plot_results

__all__ = ["plot_documents", "plot_labels", "plot_results"]
