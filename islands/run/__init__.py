"""The composition of one run, and the files that it leaves behind."""
