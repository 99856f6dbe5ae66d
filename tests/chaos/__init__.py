"""Races and crashes: what must hold when everything happens at once, or stops half-way."""
