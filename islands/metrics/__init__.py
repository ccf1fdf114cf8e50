"""Metrics of a run for Prometheus, and notices for those who have none.

Only the commands that start a process import this room, to offer it. Nothing is counted for it on
the path of a step or of a fragment: what the program counts anyway is read when somebody asks.
"""
