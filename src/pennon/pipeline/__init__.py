"""The pipeline: what runs on Spark. The driver passes bytes; only Spark's Python workers load what users wrote."""

from pennon.core.lazy_models import load_client_late

load_client_late()  # before any other module imports the models
