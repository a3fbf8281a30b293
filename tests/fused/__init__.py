"""Tests of the fused head; a package so that they can share `cases`."""
