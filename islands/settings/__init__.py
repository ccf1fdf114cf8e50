"""Settings of a run and of a host, and what follows from them alone.

Where to find what:

============================================  ==================
what all members of a run agree on            `run.py`
the outer optimizer                           `outer.py`
merge, adoption, anchor; what goes together   `combinations.py`
what is configured on one host                `host.py`
options that commands share                   `groups.py`
settings, task and layout, serialized         `run_spec.py`
the inner learning rate by the clock          `learning_rate.py`
size limits of messages                       `wire_limits.py`
hosts, ports, URLs                            `addresses.py`
amounts in readable units                     `quantities.py`
what a study compares, and how                `study.py`
nested settings by dotted keys                `nested.py`
============================================  ==================
"""
