"""Identifiers, errors, settings, paging and the caller: what every layer shares. No I/O."""
