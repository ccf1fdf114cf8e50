"""Models joined to data, ready to be named in the settings."""
