"""Looks at a machine before a run: everything that would spoil it, each with why it matters and what to do. Changes nothing.

One module per subject; every check is a function that gives findings, and none of them raises for what it finds.
"""
