"""The decorators that users write: ``udf``, ``chunker`` and ``udtf``."""
