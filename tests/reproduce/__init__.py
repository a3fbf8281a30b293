"""Tests of the reproduction."""
