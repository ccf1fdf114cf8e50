"""The runtime of one process on one host, and of its child processes.

Where to find what:

=========================================  =====================
secrets, network, signals, shutdown        `process_runtime.py`
requests to a hub from a non-member        `hub_requests.py`
the address of a folder's hub              `hub_address.py`
launching and watching child processes     `child_processes.py`
identity of a process beyond its pid       `process_identity.py`
log files of child processes               `process_output.py`
actors that run as tasks of this process   `task_processes.py`
systemd watchdog, event-loop stalls        `watchdog.py`
output that is closed, full or not UTF-8    `standard_streams.py`
sentences that fit a terminal              `wrapping.py`
=========================================  =====================
"""
