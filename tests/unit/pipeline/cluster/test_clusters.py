"""Clusters by setting, and what a driver is started with."""

from __future__ import annotations

import pytest

from pennon.core.settings import SettingsError, load_settings
from pennon.pipeline.cluster.clusters import Cluster, UnknownClusterError, find_cluster
from pennon.pipeline.cluster.session import configuration

CLUSTERS = {"big": {"master": "spark://big:7077", "conf": {"spark.executor.memory": "8g"}}, "far": {"remote": "sc://f"}}


def test_jobs_that_name_no_cluster_run_on_this_machine() -> None:
    found = find_cluster(load_settings())
    assert (found.name, found.address, found.is_local, found.is_remote) == ("default", "local[*,4]", True, False)


def test_clusters_are_found_by_name() -> None:
    settings = load_settings(clusters=CLUSTERS, spark_master="yarn", spark_conf={"a": "b"})
    assert find_cluster(settings, "big") == Cluster("big", "spark://big:7077", {"spark.executor.memory": "8g"})
    assert find_cluster(settings, "far").is_remote
    assert find_cluster(settings) == Cluster("default", "yarn", {"a": "b"})


def test_executors_are_of_the_image_where_they_are_containers() -> None:
    conf = {"spark.kubernetes.container.image": "spark:4", "spark.kubernetes.executor.container.image": "spark:4"}
    settings = load_settings(clusters=CLUSTERS | {"pods": {"master": "k8s://https://pods", "conf": conf}})
    image = "spark.kubernetes.executor.container.image"
    chosen = find_cluster(settings, "pods", "tea:1")
    assert (chosen.name, configuration(chosen)[image]) == ("pods with tea:1", "tea:1")
    assert configuration(find_cluster(settings, "pods"))[image] == "spark:4"
    assert find_cluster(settings, "big", "tea:1") == find_cluster(settings, "big")


def test_an_unknown_cluster_is_named_with_those_there_are() -> None:
    with pytest.raises(UnknownClusterError, match=r"no cluster 'small'; configured clusters: big, default, far"):
        find_cluster(load_settings(clusters=CLUSTERS), "small")


@pytest.mark.parametrize("wrong", [{}, {"master": "yarn", "remote": "sc://f"}, {"master": "yarn", "nodes": 3}])
def test_a_cluster_has_one_address_and_nothing_unknown(wrong: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match="clusters"):
        load_settings(clusters={"wrong": wrong})


def test_settings_survive_their_way_to_another_process() -> None:
    settings = load_settings(clusters=CLUSTERS)
    assert type(settings).model_validate_json(settings.model_dump_json()) == settings


def test_the_settings_have_the_last_word_on_the_configuration() -> None:
    mine = {"spark.driver.memory": "9g", "spark.driver.extraJavaOptions": "-Dmine=1"}
    conf = configuration(Cluster("default", "local[2,4]", mine))
    assert (conf["spark.master"], conf["spark.driver.memory"]) == ("local[2,4]", "9g")
    assert conf["spark.driver.extraJavaOptions"].endswith("log4j2.properties -Dmine=1")


def test_only_a_local_driver_is_bound_to_loopback() -> None:
    assert configuration(Cluster("default", "local[2,4]"))["spark.driver.host"] == "127.0.0.1"
    assert "spark.driver.host" not in configuration(Cluster("big", "spark://big:7077"))
