"""The command line: what a user types, and what the terminal shows.

The commands are `__main__.py`, the table of them `commands.py`. To add one is a row there, a
dataclass of its options in `islands.settings.commands`, and its function.
"""
