"""The command line: one module per group of commands."""

from pennon.core.lazy_models import install_lazy_models

install_lazy_models()  # before any other module imports the models
