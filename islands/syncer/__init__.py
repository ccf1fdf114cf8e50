"""The syncer acts: it owns the published fragments, and performs what `protocol/syncer` decides.

- `actor.py`: The syncer's actor
- `hooks.py`: Callbacks of a syncer into its host
- `inspection_queue.py`: Payloads that arrived and are measured on a worker
- `journal.py`: Writing the journal, recovery
- `journal_writer.py`: Writing the journal, recovery
- `share_desk.py`: The shares of contributions that hosts of an island send
- `value_sender.py`: Whole, as increments, in shares
- `vault.py`: The syncer's arrays
- `workers.py`: The syncer's workers
"""
