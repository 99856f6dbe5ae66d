"""The command line against real databases, stores and servers."""
