"""Tests of Islands and of its messaging layer; the folders mirror the packages."""
