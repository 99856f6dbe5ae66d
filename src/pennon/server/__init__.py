"""The REST binding: one table of operations, and what is derived from it."""

from pennon.core.lazy_models import load_client_late

load_client_late()  # before any other module imports the models
