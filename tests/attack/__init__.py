"""Attacks on longtail from outside: kills, damaged folders and files, wrong tensors, threads.

`python -m tests.attack --minutes 20` runs all of them; `make test` runs a bounded part of each.
"""
