"""Alerts that fire and clear: a pure state machine over samples, for those without Prometheus.

=============  =====================================================================================
a cause        the alert of its rule and labels
=============  =====================================================================================
begins         is pending
holds for_s    fires
ends           is forgotten if pending; if it fires it goes on, and clears after `keep_s` without it
=============  =====================================================================================

So a cause that comes and goes is told once. Prometheus does the same with `for` and
`keep_firing_for`. What fired in an earlier start of the process fires on, so that its end is told.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from islands.metrics.catalogue import Sample
from islands.metrics.rules import RULES, Labels, Readings, Rule, Thresholds

ALERTS_MOST = 1024
"""Alerts that are followed at once; causes beyond that are told when others are over."""

Key = tuple[str, Labels]
"""An alert: the name of its rule, and its labels."""


@dataclass(slots=True)
class _Alert:
    """One alert: since when its cause holds, and since when it is gone, if it is."""

    since_s: float
    value: float
    gone_s: float | None = None
    firing: bool = False


@dataclass(frozen=True, slots=True)
class AlertChanged:
    """An alert fires, or has cleared; `value` is the figure that its cause had last."""

    rule: Rule
    labels: Labels
    firing: bool
    value: float

    @property
    def named(self) -> dict[str, str]:
        """The labels by name."""
        return dict(zip(self.rule.labels, self.labels, strict=True))

    @property
    def summary(self) -> str:
        """The rule's sentence, with its labels."""
        return self.rule.summary.format(**self.named)


class Alerts:
    """All alerts of one process.

    Args:
        limits: the numbers of the rules.
        earlier: what `firing` was when an earlier start of the process ended.
    """

    def __init__(self, limits: Thresholds | None = None, earlier: Iterable[Key] = ()) -> None:
        """Start with the alerts of an earlier start."""
        self._limits = limits or Thresholds()
        self._now = Readings(self._limits.flap_window_s)
        self._alerts = {key: _Alert(0.0, 0.0, firing=True) for key in earlier}

    @property
    def firing(self) -> list[Key]:
        """Rule and labels of the alerts that fire."""
        return [key for key, alert in self._alerts.items() if alert.firing]

    def take(self, samples: Iterable[Sample], now_s: float) -> list[AlertChanged]:
        """Judge the samples of now; return the alerts that fire or clear by them."""
        self._now.take(samples, now_s)
        changes: list[AlertChanged] = []
        for rule in RULES:
            assert rule.holds is not None, "those of Prometheus alone are not among them"
            held = rule.holds(self._now, self._limits)
            for_s = getattr(self._limits, rule.for_s) if rule.for_s else 0.0
            for labels, value in held.items():
                changes += self._on_held(rule, labels, value, for_s)
            known = [key for key in self._alerts if key[0] == rule.name]
            changes += self._on_gone(rule, [key for key in known if key[1] not in held])
        return changes

    def _on_held(
        self, rule: Rule, labels: Labels, value: float, for_s: float
    ) -> list[AlertChanged]:
        now_s, key = self._now.now_s, (rule.name, labels)
        if key not in self._alerts and len(self._alerts) >= ALERTS_MOST:
            return []
        alert = self._alerts.setdefault(key, _Alert(now_s, value))
        alert.gone_s, alert.value = None, value
        if alert.firing or now_s - alert.since_s < for_s:
            return []
        alert.firing = True
        return [AlertChanged(rule, labels, firing=True, value=value)]

    def _on_gone(self, rule: Rule, keys: list[Key]) -> list[AlertChanged]:
        changes, now_s = [], self._now.now_s
        for key in keys:
            alert = self._alerts[key]
            alert.gone_s = now_s if alert.gone_s is None else alert.gone_s
            if alert.firing and now_s - alert.gone_s < self._limits.keep_s:
                continue
            del self._alerts[key]
            if alert.firing:
                changes.append(AlertChanged(rule, key[1], firing=False, value=alert.value))
        return changes
