"""Commands: what a user types, and what stands on the terminal.

Where to find what:

=============================================  ==============================================
`islands` and its subcommands                  `__main__.py`, `run.py`, `demo.py`, `check.py`,
                                               `control.py`; a hub without learners: `serve.py`
one command from its line to its exit code     `command.py`
defaults, files, environment, command line     `parsing.py`, `sources.py`, `yaml_file.py`
options as a table of keys, and their help     `schema.py`, `help_text.py`
what a start would need and refuse             `dry_run.py`, shown by `plan_screen.py`
a run while it goes on                         `run_status.py`, shown by `screen.py`
=============================================  ==============================================
"""
