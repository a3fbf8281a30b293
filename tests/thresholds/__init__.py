"""Tests of the thresholds; a package so that they can share `cases`."""
