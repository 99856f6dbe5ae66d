"""The decorators for user-defined functions: ``udf``, ``chunker`` and ``udtf``."""
