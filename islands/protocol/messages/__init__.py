"""Every message between the roles.

Reports are cumulative and commands are idempotent, so a message may be lost, repeated or overtaken
by bulk data without harm. The docstring of a message says whether it carries a bulk payload.
"""
