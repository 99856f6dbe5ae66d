"""The durable queue: jobs are submitted, claimed under a lease, carried out once, and can be stopped and repeated."""
