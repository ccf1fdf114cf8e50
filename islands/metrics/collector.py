"""Prometheus' text of samples, by a collector that reads the state when it is scraped."""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from islands.metrics.catalogue import BY_NAME, Kind, Sample

TEXT = "text/plain; version=0.0.4; charset=utf-8"
Family = CounterMetricFamily | GaugeMetricFamily


class StateCollector(Collector):
    """Makes families of the samples that are read at each scrape; it keeps nothing between two.

    Args:
        read: returns the samples of now.
    """

    def __init__(self, read: Callable[[], Iterable[Sample]]) -> None:
        self._read = read

    def collect(self) -> Iterator[Family]:
        families: dict[str, Family] = {}
        for sample in self._read():
            family = families.get(sample.name)
            if family is None:
                family = families[sample.name] = _family(sample.name)
            family.add_metric(sample.labels, float(sample.value))
        yield from families.values()


def _family(name: str) -> Family:
    metric = BY_NAME[name]
    kind = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
    return kind(name, metric.meaning, labels=metric.labels)


def exposition_of(read: Callable[[], Iterable[Sample]]) -> Callable[[], bytes]:
    """Return a function that reads the samples, and returns them as text for a scraper.

    The process's own figures (`process_cpu_seconds_total` and its siblings) are added.
    """
    registry = CollectorRegistry()
    registry.register(StateCollector(read))
    ProcessCollector(registry=registry)
    return lambda: generate_latest(registry)
