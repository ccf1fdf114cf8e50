"""Scenarios of all roles as a reviewer reads them, in files of their own."""
