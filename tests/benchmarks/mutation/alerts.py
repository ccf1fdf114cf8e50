"""Alerts, and what the metrics tell."""

from tests.benchmarks.mutation.kind import Mutation

ALERTS = "tests/metrics/test_alerts.py"
SITE = "tests/metrics/test_site.py"
CONTROL = "tests/integration/test_control.py"

ALERTED = (
    Mutation(
        "an alert clears as soon as its cause is gone",
        "islands/metrics/alerts.py",
        "now_s - alert.gone_s < self._limits.keep_s",
        "now_s < alert.gone_s",
        (ALERTS,),
    ),
    Mutation(
        "what fired before a restart is forgotten",
        "islands/metrics/alerts.py",
        "for key in earlier}",
        "for key in list(earlier)[:0]}",
        (ALERTS,),
    ),
    Mutation(
        "alerts of another version are taken over",
        "islands/metrics/notices.py",
        "if labels.get(key[0]) == len(key[1])",
        "if key[0]",
        (ALERTS,),
    ),
    Mutation(
        "a notice that could not be given is lost",
        "islands/metrics/notices.py",
        "TRIES = 3",
        "TRIES = 1",
        (ALERTS,),
    ),
    Mutation(
        "a learner flaps one admission later",
        "islands/metrics/rules.py",
        "if count >= limits.flaps}",
        "if count > limits.flaps}",
        (ALERTS,),
    ),
    Mutation(
        "a yield is judged before much was merged",
        "islands/metrics/rules.py",
        "merges <= limits.yield_merges * fragments",
        "merges < 0",
        (ALERTS,),
    ),
    Mutation(
        "the state of a learner is a number",
        "islands/metrics/site.py",
        "labels if metric.tells_words else",
        "labels if metric.name == '' else",
        (SITE,),
    ),
    Mutation(
        "a program that asks for JSON is given the table",
        "islands/cli/control.py",
        "    if options.json:\n",
        "    if options.json and not status:\n",
        (CONTROL,),
    ),
)
