"""The command line: one module a group of commands."""

from pennon.core.lazy_models import load_client_late

load_client_late()  # before any other module imports the models
