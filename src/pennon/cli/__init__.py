"""The command line: one module a group of commands."""

from pennon.core.late_client import load_client_late

load_client_late()  # before any other module imports the models
