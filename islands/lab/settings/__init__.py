"""The options of the laboratory's commands."""
