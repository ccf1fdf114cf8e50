"""Fleets that grow and shrink: from a target to the wanted number of islands, and to commands.

- `targets.py`: how many islands a deadline, money per hour or the gain of one more asks for; pure
- `steadying.py`: what is added and drained, so that a fleet does not flap; pure
- `fleet.py`: the entries of a run, with speed, price and islands, from its folder or its file
- `looking.py`: looks at a run again and again, tells what is wanted, and has it carried out
"""
