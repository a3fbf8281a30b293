"""Tests of the analysis; a package so that they can share `cases`."""
