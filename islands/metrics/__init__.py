"""Metrics of a run for Prometheus, and notices for those who have none.

Only the commands that start a process import this room, to offer it. Nothing is counted for it on
the path of a step or of a fragment: what the program counts anyway is read when somebody asks.

- `catalogue.py`: every metric with type, unit, labels and meaning
- `samples.py`: samples of a run, a syncer and a member, pure
- `access.py`: who may read them
- `sources.py`: what a hub, a syncer apart and another member read of themselves
- `collector.py`: Prometheus' text, by prometheus-client
- `site.py`: `/metrics`, `/status`, `/healthz`, `/readyz`
- `offering.py`: where these are offered
- `notices.py`: entries of the log that are told to a command or a URL
"""
