"""Figures of labelled documents: the long tail with its links, and the sizes of the documents.

matplotlib is imported only to draw.
"""

from longtail.figures.drawing import plot_documents, plot_labels

__all__ = ["plot_documents", "plot_labels"]
