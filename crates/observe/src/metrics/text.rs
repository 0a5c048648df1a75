//! Metrics as text, in the format of OpenMetrics 1.0.0 or in the older one of Prometheus, 0.0.4.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::cells::{Counter, HistogramCounts, MetricReading};
use super::requests::Requests;
use super::scans::FilterMetrics;
use super::{METRICS, Metrics, NodeMetrics, PoolMetrics, nodes, process};
use rowhouse_protocol::request::{OperationLabel, Scheme};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricsFormat {
    OpenMetrics,
    Prometheus,
}

impl MetricsFormat {
    /// The media type without parameters, as it is in `Accept`.
    pub fn media_type(self) -> &'static str {
        match self {
            MetricsFormat::OpenMetrics => "application/openmetrics-text",
            MetricsFormat::Prometheus => "text/plain",
        }
    }

    /// The value of `Content-Type` of the output of [`print()`].
    pub fn content_type(self) -> &'static str {
        match self {
            MetricsFormat::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            MetricsFormat::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Durations are measured in microseconds and printed in seconds.
const MICROS_PER_SECOND: f64 = 1e6;

pub fn print(format: MetricsFormat) -> String {
    let mut page = MetricsText { text: String::new(), format };
    process_metrics(&mut page);
    request_metrics(&mut page, &METRICS.requests);
    refusal_metrics(&mut page, &METRICS.requests);
    let in_flight = METRICS.requests.in_flight() as f64;
    page.single("rowhouse_requests_in_flight", "gauge", "Requests in flight.", in_flight);
    page.readings(&METRICS.requests.read());
    let FilterMetrics { scans, by_index } = &METRICS.filters;
    page.labelled_readings("by", &scans.read(), &[("scan", scans.read()), ("index", by_index.read())]);
    round_metrics(&mut page, &METRICS);
    page.readings(&METRICS.read());
    pool_metrics(&mut page, &METRICS);
    node_metrics(&mut page);
    page.readings(&METRICS.tls.read());
    page.readings(&METRICS.traces.read());
    if format == MetricsFormat::OpenMetrics {
        page.text.push_str("# EOF\n");
    }
    page.text
}

fn process_metrics(page: &mut MetricsText) {
    page.family("rowhouse_build", "info", "The version of the server.");
    page.sample("rowhouse_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    page.single("rowhouse_uptime_seconds", "gauge", "Time since the start.", process::uptime());
    let start = process::start_time();
    page.single("process_start_time_seconds", "gauge", "When the process started, since 1970.", start);
    if let Some(bytes) = process::resident_memory() {
        page.single("process_resident_memory_bytes", "gauge", "Memory that the process holds.", bytes as f64);
    }
    if let Some(files) = process::open_files() {
        page.single("process_open_fds", "gauge", "Files and connections that are open.", files as f64);
    }
}

fn request_metrics(page: &mut MetricsText, requests: &Requests) {
    page.family("rowhouse_requests", "counter", "Requests answered, by operation, status and error code.");
    for operation in OperationLabel::ALL {
        // Several codes share one wire code if they differ only in the message.
        let mut sums: BTreeMap<(u16, &str), u64> = BTreeMap::new();
        for (status, refusal, count) in requests.outcomes(operation) {
            let error = refusal.map_or("", |code| code.facts().code);
            *sums.entry((status, error)).or_default() += count;
        }
        for ((status, error), count) in sums {
            let status = if status == 0 { "other".to_owned() } else { status.to_string() };
            let labels = [("operation", operation.text()), ("status", status.as_str()), ("error", error)];
            page.sample("rowhouse_requests_total", &labels, count as f64);
        }
    }
    let about = "Time from the head of a request to its answer, by operation.";
    page.family("rowhouse_request_duration_seconds", "histogram", about);
    for operation in OperationLabel::ALL {
        let counts = requests.durations(operation);
        if counts.count() > 0 {
            let label = ("operation", operation.text());
            page.histogram("rowhouse_request_duration_seconds", label, &counts, MICROS_PER_SECOND);
        }
    }
    let about = "Time that requests waited for the database, by operation.";
    page.family("rowhouse_request_database_seconds", "counter", about);
    for operation in OperationLabel::ALL {
        let micros = requests.database(operation);
        if micros > 0 {
            let labels = [("operation", operation.text())];
            page.sample(
                "rowhouse_request_database_seconds_total",
                &labels,
                micros as f64 / MICROS_PER_SECOND,
            );
        }
    }
}

fn refusal_metrics(page: &mut MetricsText, requests: &Requests) {
    let about = "Requests that were not authorized, by scheme, status and error code.";
    page.family("rowhouse_authentication_failures", "counter", about);
    for scheme in Scheme::ALL {
        let mut sums: BTreeMap<(u16, &str), u64> = BTreeMap::new();
        for (code, count) in requests.refused(scheme) {
            *sums.entry((code.facts().status, code.facts().code)).or_default() += count;
        }
        for ((status, error), count) in sums {
            let status = status.to_string();
            let labels = [("scheme", scheme.text()), ("status", status.as_str()), ("error", error)];
            page.sample("rowhouse_authentication_failures_total", &labels, count as f64);
        }
    }
}

fn round_metrics(page: &mut MetricsText, metrics: &Metrics) {
    let about = "Requests per round trip or commit that they shared; the count is the number of round trips.";
    page.family("rowhouse_round_requests", "histogram", about);
    for (kind, rounds) in [
        ("read", &metrics.read_rounds),
        ("write", &metrics.write_rounds),
        ("sqlite_write", &metrics.sqlite_rounds),
    ] {
        page.histogram("rowhouse_round_requests", ("kind", kind), &rounds.read(), 1.0);
    }
}

fn pool_metrics(page: &mut MetricsText, metrics: &Metrics) {
    let pools = [
        ("shared", &metrics.shared_pool),
        ("read", &metrics.read_lanes),
        ("write", &metrics.write_lanes),
        ("probe", &metrics.probe_pool),
    ];
    page.family("rowhouse_postgres_connections", "gauge", "Connections to PostgreSQL.");
    for (name, pool) in pools {
        for (state, gauge) in [("in_use", &pool.in_use), ("idle", &pool.idle)] {
            let labels = [("pool", name), ("state", state)];
            page.sample("rowhouse_postgres_connections", &labels, gauge.get() as f64);
        }
    }
    let sets = pools.map(|(name, pool)| (name, pool.read()));
    page.labelled_readings("pool", &PoolMetrics::new().read(), &sets);
}

fn node_metrics(page: &mut MetricsText) {
    let nodes = nodes();
    let sets: Vec<_> = nodes.iter().map(|(name, node)| (name.as_str(), node.read())).collect();
    page.labelled_readings("node", &NodeMetrics::new().read(), &sets);
}

/// Builds the text.
struct MetricsText {
    text: String,
    format: MetricsFormat,
}

impl MetricsText {
    /// Begins a family. In the format of Prometheus, a family has the name of its samples, and the type `info` does not
    /// exist.
    fn family(&mut self, name: &str, kind: &str, about: &str) {
        let (ending, kind) = match (self.format, kind) {
            (MetricsFormat::Prometheus, "counter") => ("_total", "counter"),
            (MetricsFormat::Prometheus, "info") => ("_info", "gauge"),
            (_, kind) => ("", kind),
        };
        let _ = writeln!(self.text, "# HELP {name}{ending} {about}\n# TYPE {name}{ending} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.text.push_str(name);
        for (at, (label, text)) in labels.iter().enumerate() {
            // Names of nodes come from settings.
            let text = text.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n");
            let _ = write!(self.text, "{}{label}=\"{text}\"", if at == 0 { '{' } else { ',' });
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{end} {value}");
    }

    fn reading(&mut self, reading: &MetricReading, labels: &[(&str, &str)]) {
        let ending = if reading.kind == Counter::TYPE { "_total" } else { "" };
        self.sample(&format!("{}{ending}", reading.family), labels, reading.value);
    }

    /// Adds families that have one sample each.
    fn readings(&mut self, readings: &[MetricReading]) {
        for reading in readings {
            self.family(reading.family, reading.kind, reading.meaning);
            self.reading(reading, &[]);
        }
    }

    /// Adds families that have one sample in each set. The value of `label` is the name of the set.
    fn labelled_readings(
        &mut self,
        label: &str,
        families: &[MetricReading],
        sets: &[(&str, Vec<MetricReading>)],
    ) {
        for (at, family) in families.iter().enumerate() {
            self.family(family.family, family.kind, family.meaning);
            for (name, readings) in sets {
                self.reading(&readings[at], &[(label, name)]);
            }
        }
    }

    fn single(&mut self, name: &str, kind: &str, about: &str, value: f64) {
        self.family(name, kind, about);
        self.sample(name, &[], value);
    }

    fn histogram<const N: usize>(
        &mut self,
        name: &str,
        (label, text): (&str, &str),
        counts: &HistogramCounts<N>,
        unit: f64,
    ) {
        let bucket = format!("{name}_bucket");
        let mut sum = 0;
        for (bound, within) in counts.bounds.iter().zip(counts.within) {
            sum += within;
            // OpenMetrics requires bounds in their canonical form: 1.0, not 1.
            let bound = format!("{:?}", *bound as f64 / unit);
            self.sample(&bucket, &[(label, text), ("le", &bound)], sum as f64);
        }
        let count = counts.count() as f64;
        self.sample(&bucket, &[(label, text), ("le", "+Inf")], count);
        self.sample(&format!("{name}_sum"), &[(label, text)], counts.sum as f64 / unit);
        self.sample(&format!("{name}_count"), &[(label, text)], count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::cells::Histogram;

    #[test]
    fn histograms_sum_up_and_end_with_everything() {
        let histogram = Histogram::new(&[1_000, 1_000_000]);
        [500, 600_000, 2_000_000].into_iter().for_each(|value| histogram.add(value));
        let mut page = MetricsText { text: String::new(), format: MetricsFormat::OpenMetrics };
        page.histogram("h", ("a", "b"), &histogram.read(), MICROS_PER_SECOND);
        let expected = "h_bucket{a=\"b\",le=\"0.001\"} 1\nh_bucket{a=\"b\",le=\"1.0\"} 2\n\
                        h_bucket{a=\"b\",le=\"+Inf\"} 3\nh_sum{a=\"b\"} 2.6005\nh_count{a=\"b\"} 3\n";
        assert_eq!(page.text, expected);
    }

    #[test]
    fn values_of_labels_are_escaped() {
        let mut page = MetricsText { text: String::new(), format: MetricsFormat::OpenMetrics };
        page.sample("m", &[("node", "a\"b\\c\nd")], 1.0);
        assert_eq!(page.text, "m{node=\"a\\\"b\\\\c\\nd\"} 1\n");
    }

    #[test]
    fn families_are_named_as_each_format_wants() {
        let heads = |format| {
            let text = print(format);
            let head = |name: &str| text.lines().any(|line| line == format!("# TYPE {name}"));
            [
                "rowhouse_requests counter",
                "rowhouse_requests_total counter",
                "rowhouse_build info",
                "rowhouse_build_info gauge",
                "rowhouse_requests_in_flight gauge",
                "rowhouse_round_requests histogram",
            ]
            .map(head)
        };
        assert_eq!(heads(MetricsFormat::OpenMetrics), [true, false, true, false, true, true]);
        assert_eq!(heads(MetricsFormat::Prometheus), [false, true, false, true, true, true]);
        assert!(!print(MetricsFormat::Prometheus).contains("# EOF"));
    }

    #[test]
    fn every_sample_belongs_to_the_family_above_it() {
        METRICS.requests.page(3);
        let text = print(MetricsFormat::OpenMetrics);
        let mut family = String::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                family = rest.split(' ').next().unwrap().to_owned();
            } else if !line.starts_with('#') {
                assert!(line.starts_with(&family), "{line} below {family}");
            }
        }
        assert!(text.ends_with("# EOF\n"));
        assert!(text.contains("\nrowhouse_pages_returned_total "));
    }
}
