"""A few tests of everything, for a Python or a system that the whole suite is not run on."""
