"""Metrics of a run for Prometheus, and notices for those who have none."""
