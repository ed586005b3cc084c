"""Counts what the server does, in the text format that Prometheus reads."""

from __future__ import annotations

import threading
from collections import Counter

# Seconds; the smallest is about what one pair takes, the largest what clients wait.
_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """Counters of one server. May be called from several threads at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._buckets: Counter[float] = Counter()
        self._seconds = 0.0
        self._pairs = 0

    def count_request(self, path: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        with self._lock:
            self._requests[path, status] += 1
            self._seconds += seconds
            self._buckets[next((b for b in _BOUNDS if seconds <= b), float("inf"))] += 1

    def count_pairs(self, pairs: int) -> None:
        """Count aligned pairs."""
        with self._lock:
            self._pairs += pairs

    def render(self, **gauges: int) -> str:
        """Return all counters, and gauges by name."""
        with self._lock:
            lines = ["# TYPE mx_requests_total counter"]
            for (path, status), count in sorted(self._requests.items()):
                lines.append(f'mx_requests_total{{path="{path}",status="{status}"}} {count}')
            lines += ["# TYPE mx_pairs_total counter", f"mx_pairs_total {self._pairs}"]
            lines.append("# TYPE mx_request_seconds histogram")
            total = 0
            for bound in (*_BOUNDS, float("inf")):
                total += self._buckets[bound]
                name = "+Inf" if bound == float("inf") else f"{bound:g}"
                lines.append(f'mx_request_seconds_bucket{{le="{name}"}} {total}')
            lines.append(f"mx_request_seconds_sum {self._seconds:.6f}")
            lines.append(f"mx_request_seconds_count {total}")
        for name, value in gauges.items():
            lines += [f"# TYPE mx_{name} gauge", f"mx_{name} {value}"]
        return "".join(f"{line}\n" for line in lines)
