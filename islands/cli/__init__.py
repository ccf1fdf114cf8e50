"""The command line: what a user types, and what the terminal shows.

Where to find what:

=============================================  ==============================================
`islands` and its subcommands                  `__main__.py`, `run.py`, `demo.py`, `check.py`,
                                               `control.py`; a hub without learners: `serve.py`
one command, from arguments to exit code       `command.py`
defaults, files, environment, command line     `parsing.py`, `sources.py`, `yaml_file.py`
options as a table of keys, and their help     `schema.py`, `help_text.py`
what a start would need and refuse             `dry_run.py`, shown by `plan_screen.py`
status of a run in progress                    `run_status.py`, shown by `screen.py`
=============================================  ==============================================
"""
