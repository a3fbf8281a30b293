"""Tests of the evaluation; a package so that they can share `cases`."""
