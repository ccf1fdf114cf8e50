"""OpenTelemetry's spans of each fragment's journey; variables of the environment set it up.

Spans go by OTLP over HTTP to `OTEL_EXPORTER_OTLP_ENDPOINT`. With `OTEL_TRACES_EXPORTER=console`
they are lines of JSON in `sinks/otel.log` of the run's folder.
"""

import os
from collections.abc import Sequence

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    ConsoleSpanExporter,
    SimpleSpanProcessor,
    SpanExporter,
)
from opentelemetry.trace import set_span_in_context

from islands.sinks.journeys import Journey, Journeys
from islands.sinks.sink import Row, RunFacts

CONSOLE = "console"


class Otel:
    """Spans of a run.

    Args:
        run: the run.
        exporter: takes the spans; by default the one that the environment names.
    """

    def __init__(self, run: RunFacts, exporter: SpanExporter | None = None) -> None:
        named = {"service.name": "islands", "islands.run": run.name, "islands.id": run.identity}
        self._provider = TracerProvider(resource=Resource.create(named))
        if exporter is None and os.environ.get("OTEL_TRACES_EXPORTER") == CONSOLE:
            exporter = ConsoleSpanExporter(formatter=lambda span: span.to_json(indent=None) + "\n")
        if exporter is None:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        else:
            self._provider.add_span_processor(SimpleSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("islands")
        self._journeys = Journeys()

    def record(self, rows: Sequence[Row]) -> None:
        """Take entries of tapes, and export the journeys that are over by them."""
        for row in rows:
            for journey in self._journeys.add(row):
                self._export(journey)

    def end(self, summary: Row | None) -> None:
        """Export what is left."""
        for journey in self._journeys.rest():
            self._export(journey)
        self._provider.shutdown()

    def _export(self, journey: Journey) -> None:
        spans = [*journey.spans()]
        if not spans:
            return
        attributes = {
            "islands.fragment": journey.fragment,
            "islands.round": journey.round,
            "islands.version": journey.version,
            "islands.tokens": sum(journey.tokens[name] for name in journey.arrived_s),
            "islands.participants": len(journey.arrived_s),
        }
        whole = self._tracer.start_span(
            f"fragment {journey.fragment}",
            start_time=_ns(min(span.start_s for span in spans)),
            attributes=attributes,
        )
        within = set_span_in_context(whole)
        for span in spans:
            told: dict[str, str | int] = {}
            if span.whose:
                told["islands.learner"] = span.whose
            if span.tokens is not None:
                told["islands.tokens"] = span.tokens
            part = self._tracer.start_span(
                span.name, within, start_time=_ns(span.start_s), attributes=told
            )
            part.end(_ns(span.end_s))
        whole.end(_ns(max(span.end_s for span in spans)))


def _ns(at_s: float) -> int:
    return int(at_s * 1e9)


def start(run: RunFacts) -> Otel:
    """Begin: a journey that was under way when a hub was restarted is told from there on."""
    return Otel(run)
