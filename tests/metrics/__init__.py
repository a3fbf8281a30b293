"""Tests of the metrics; a package so that they can share `cases`."""
