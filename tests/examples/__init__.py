"""Tests of the programs under examples/ and of the bridges that they show."""
