"""The pipeline: what runs on Spark. The driver passes bytes; only Spark's Python workers load what users wrote."""
