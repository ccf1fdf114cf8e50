"""Actors, links between them, and a virtual world to test both in.

The package knows nothing of training. Read it in this order: `envelope` (what travels), `codec`
(how it looks on a wire), `mailbox`, `ref` and `actor` (who handles it), `scope` (who ends whom),
`link` (a session between two hosts), `memory_link` (its implementation inside one process),
`link_state` and `dialer` (how a lost session comes back), `virtual_time` and `simulated_network`
(the same, under a clock that jumps and a network that misbehaves to order).
"""
