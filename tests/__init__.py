"""Tests of longtail; a package so that its parts can share their cases."""
