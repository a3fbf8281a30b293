"""Tests of the losses; a package so that they can share `cases`."""
