"""Settings of a host, and what follows from the settings of a run alone."""
