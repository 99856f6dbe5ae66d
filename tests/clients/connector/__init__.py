"""The published connector of Lance for Spark, in Java."""
