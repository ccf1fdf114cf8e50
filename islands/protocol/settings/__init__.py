"""The settings of a run, which all of its members share, and which of them go together.

To add a setting is a field of its class with its facts and its line under `Args:`, and its use.
"""
