"""Tests of a server that runs as several processes."""
