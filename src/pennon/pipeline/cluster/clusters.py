"""The Spark clusters that jobs can run on, by their names in the settings."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from pennon.core.settings import Settings

#: The cluster of jobs that do not name one.
DEFAULT = "default"
_IMAGE = "spark.kubernetes.executor.container.image"


class UnknownClusterError(LookupError):
    """The settings have no cluster of that name."""


@dataclass(frozen=True)
class Cluster:
    """A Spark cluster: the address of its master or of its Connect server, and its configuration."""

    name: str
    address: str
    conf: dict[str, str] = field(default_factory=dict)

    @property
    def is_remote(self) -> bool:
        """Whether workers reach it through Spark Connect."""
        return self.address.startswith("sc://")

    @property
    def is_local(self) -> bool:
        """Whether its tasks run on this machine, with the worker's Python."""
        return self.address.startswith("local")

    @property
    def has_containers(self) -> bool:
        """Whether its executors are containers, whose image the driver chooses."""
        return self.address.startswith("k8s://")

    def with_image(self, image: str | None) -> Cluster:
        """Return the cluster with executors of this image; unchanged if executors are not containers."""
        if not image or not self.has_containers:
            return self
        return replace(self, name=f"{self.name} with {image}", conf=self.conf | {_IMAGE: image})


def find_cluster(settings: Settings, name: str | None = None, image: str | None = None) -> Cluster:
    """Return the cluster of that name, by default that of ``spark_master``, with executors of an image."""
    wanted = name or DEFAULT
    if wanted in settings.clusters:
        chosen = settings.clusters[wanted]
        return Cluster(wanted, chosen.master or chosen.remote or "", chosen.conf).with_image(image)
    if wanted == DEFAULT:
        return Cluster(DEFAULT, settings.spark_master, settings.spark_conf).with_image(image)
    known = ", ".join(sorted({DEFAULT, *settings.clusters}))
    raise UnknownClusterError(f"The settings have no cluster {wanted!r}; configured clusters: {known}.")
