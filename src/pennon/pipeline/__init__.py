"""The pipeline: what runs on Spark. The driver passes bytes; only Spark's Python workers load what users wrote."""

from pennon.core.lazy_models import install_lazy_models

install_lazy_models()  # before any other module imports the models
