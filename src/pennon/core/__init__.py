"""Identifiers, errors, settings, paging and the caller: shared by every layer. No I/O."""
