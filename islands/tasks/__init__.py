"""Tasks that come with the package and can be named in the settings: models joined to data."""
