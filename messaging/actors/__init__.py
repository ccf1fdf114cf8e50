"""Actors: private state, mailboxes, references, tasks with one owner."""
