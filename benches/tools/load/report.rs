//! The line that says what was measured.

use serde_json::{Value, json};

use crate::measure::Sample;
use crate::options::Options;
use crate::process::Used;

pub fn line(options: &Options, sample: &Sample, used: &Used) -> Value {
    let each =
        |seconds: Option<f64>| seconds.map(|seconds| round(seconds * 1e6 / (sample.requests.max(1) as f64)));
    json!({
        "operation": options.operation.name(),
        "connections": options.connections,
        "requests": sample.requests,
        "seconds": round(sample.seconds),
        "per_second": round(sample.per_second()),
        "microseconds": {
            "p50": round(sample.percentile(0.5)),
            "p90": round(sample.percentile(0.9)),
            "p99": round(sample.percentile(0.99)),
            "max": round(sample.percentile(1.0)),
        },
        "errors": sample.errors,
        "cpu_microseconds": {"server": each(used.server_seconds), "postgres": each(used.postgres_seconds)},
    })
}

/// Three digits after the point are plenty.
fn round(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}
