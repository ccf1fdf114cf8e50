"""The money and the energy of a run, from its records and a file of prices."""
