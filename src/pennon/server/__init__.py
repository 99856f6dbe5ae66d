"""The REST server: one table of operations, HTTP, authentication and authorization."""

from pennon.core.lazy_models import install_lazy_models

install_lazy_models()  # before any other module imports the models
