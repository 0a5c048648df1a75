//! Failures that repeat do not drown the log.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::support::batch::{post, query_batch};

/// The lines of a level that say this.
fn lines<'a>(log: &'a str, level: &str, words: &str) -> Vec<&'a str> {
    let level = format!(" {level} ");
    log.lines().filter(|line| line.contains(&level) && line.contains(words)).collect()
}

/// The sum of what lines say that was left out.
fn left_out(lines: &[&str]) -> usize {
    let count = |line: &&str| {
        let (_, rest) = line.split_once("left_out=")?;
        rest.split(' ').next()?.trim().parse::<usize>().ok()
    };
    lines.iter().filter_map(count).sum()
}

#[test]
fn of_failures_that_are_alike_one_a_second_is_a_warning() {
    let more = ["--max-requests-per-second", "1", "--log", "debug"];
    let (server, admin) = server("sqlite::memory:", &more);
    let client = server.client();
    let begun = Instant::now();
    (0..300).for_each(|_| drop(client.get("/Tables")));
    // The same holds for operators who are refused.
    let stranger = "GET /metrics HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer wrong\r\n\r\n";
    (0..100).for_each(|_| assert_eq!(admin.exchange("GET", stranger.as_bytes()).status, 401));
    let told = lines(&server.log(), "WARN", "the admin listener refused a request").len();
    let most = begun.elapsed().as_secs() as usize + 2;
    assert!((1..=most).contains(&told), "{told} of at most {most}");
    until("a warning that tells of all before it", || {
        client.get("/Tables");
        let log = server.log();
        let warnings = lines(&log, "WARN", "request failed");
        warnings.len() > 1 && left_out(&warnings) == lines(&log, "DEBUG", "request failed").len()
    });
    let seconds = begun.elapsed().as_secs() as usize;
    let failed = sample(&metrics(&admin), "rowhouse_requests_throttled_total") as usize;
    let log = server.log();
    let (warnings, others) = (lines(&log, "WARN", "request failed"), lines(&log, "DEBUG", "request failed"));
    assert!(warnings.len() <= seconds + 2, "{} in {seconds} s", warnings.len());
    assert_eq!(warnings.len() + others.len(), failed, "nothing is lost at debug");
    assert!(!others.is_empty() && warnings.iter().all(|line| line.contains("ServerBusy")));
}

#[test]
fn what_nobody_does_is_no_failure() {
    let (server, _admin) = server("sqlite::memory:", &["--log", "debug"]);
    let client = server.client();
    let t = client.table();
    assert_eq!(client.get(&format!("/{}()?$filter=startswith(RowKey,'x')", t.name)).status, 501);
    let log = server.log();
    assert_eq!(lines(&log, "WARN", ""), [""; 0]);
    assert_eq!(lines(&log, "DEBUG", "NotImplemented").len(), 1, "{log}");
}

#[test]
fn a_database_that_is_away_is_told_of_once_a_second() {
    let url = fresh_database();
    let (server, _admin) = server(&url, &[]);
    let client = server.client();
    let t = client.table();
    let allow_again = cut_off(&url);
    let (begun, failed) = (Instant::now(), AtomicUsize::new(0));
    let lasts = || {
        begun.elapsed() < Duration::from_secs(3)
            || failed.load(Ordering::Relaxed) <= 50 && begun.elapsed() < Duration::from_secs(60)
    };
    let fails = || {
        let mine = server.client();
        let mine = Table::new(&mine, t.name.clone());
        let asks = std::iter::repeat_with(|| mine.get("p", "r").status);
        for _ in asks.take_while(|_| lasts()).filter(|status| *status >= 500) {
            failed.fetch_add(1, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| (0..8).for_each(|_| drop(scope.spawn(fails))));
    let failed = failed.into_inner();
    let seconds = begun.elapsed().as_secs() as usize;
    allow_again();
    let log = server.log();
    assert!(failed > 50, "{failed}");
    for words in ["request failed", "a statement failed", "refused a statement", "cannot connect"] {
        let told = lines(&log, "WARN", words).len();
        // Each code of a request is a kind.
        assert!(told <= 2 * (seconds + 2), "{told} times {words:?} in {seconds} s");
    }
    assert!(!lines(&log, "WARN", "cannot connect").is_empty(), "{log}");
}

#[test]
fn a_group_that_fails_inside_is_a_failure_of_its_table() {
    let url = fresh_database();
    let (server, admin) = server(&url, &[]);
    let client = server.client();
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    execute(&url, "UPDATE entities SET properties = '[]'");
    Batch::new()
        .write("MERGE", &t, ("p", "r"), &json!({ "B": 1 }), Some("*"))
        .insert(&t, &with_keys("p", "s", json!({})))
        .send(&client)
        .refused(0, INTERNAL);
    let read = query_batch(&client.url(&t.path("p", "r")));
    assert_eq!(BatchAnswer::of(post(&client, read).send()).parts[0].status, 500);
    let (log, counts) = (server.log(), metrics(&admin));
    let warnings = lines(&log, "WARN", "request failed");
    for operation in ["EntityGroupTransaction", "QueryBatch"] {
        let fields =
            format!("operation=\"{operation}\" table=\"{}\" status=500 error=\"InternalError\"", t.name);
        assert_eq!(warnings.iter().filter(|line| line.contains(&fields)).count(), 1, "{log}");
        let labels = format!("operation=\"{operation}\",status=\"500\",error=\"InternalError\"");
        assert_eq!(sample(&counts, &format!("rowhouse_requests_total{{{labels}}}")), 1.0);
    }
    // What clients are refused for is no failure, inside or outside.
    Batch::new().insert(&t, &with_keys("p", "r", json!({}))).send(&client).refused_alone(ENTITY_EXISTS);
    assert_eq!(lines(&server.log(), "WARN", "request failed").len(), 2);
}
