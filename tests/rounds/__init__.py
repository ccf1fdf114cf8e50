"""The round, tested on the states alone: no loop, no arithmetic, no clock but a number."""
