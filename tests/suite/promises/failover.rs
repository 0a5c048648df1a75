//! A URL that lists the hosts of one PostgreSQL: servers find its primary and leave a former one, nothing
//! acknowledged is lost, and nothing older than that is read.

use std::time::{Duration, Instant};

use serde_json::json;

use super::crash::storm;
use super::line::Line;
use super::outages::{answer, until_well};
use super::pair::Pair;
use super::proxy::Traffic;
use super::site::Site;

/// How long clients work between two faults.
const WORK: Duration = Duration::from_millis(700);

fn work() {
    std::thread::sleep(WORK);
}

/// Waits until a write succeeds, and prints how long that took.
fn until_written(site: &Site, what: &str) {
    let begun = Instant::now();
    let client = site.client();
    let mut line = Line::new(&site.address);
    let write = client.request("POST", "/Tables").json(&json!({ "TableName": crate::support::fresh_name() }));
    until_well(&mut line, &write);
    println!("{what}: written after {:?}", begun.elapsed());
}

#[test]
fn a_standby_that_is_listed_first_is_skipped() {
    let pair = Pair::start();
    let site = Site::start(
        &pair.url([1, 0], "read-write"),
        &["--secondary-database-url", &pair.url([0, 1], "standby")],
    );
    let client = site.client();
    let table = client.table();
    table.seed_one(json!({ "A": 1 }));
    let mut line = Line::new(&site.address);
    until_well(&mut line, &table.on("PUT", "p", "r").json(&json!({ "A": 2 })));
    assert_eq!(table.properties(), json!({ "A": 2 }));
    let asked = pair.roads[1].accepted();
    let secondary = client.secondary();
    until_well(&mut line, &secondary.request("GET", "/Tables"));
    assert!(pair.roads[1].accepted() > asked, "the standby answers for the secondary");
    // Of any host, that of the first, whose sessions do not serve where a primary is needed.
    let any = Site::start(&pair.url([0, 1], "any"), &[]);
    assert_eq!(answer(&mut Line::new(&any.address), &any.client().request("GET", "/Tables")).status, 200);
}

#[test]
fn a_primary_that_dies_is_replaced_and_comes_back_as_a_standby() {
    let mut pair = Pair::start();
    let mut site = Site::start(&pair.url([0, 1], "read-write"), &[]);
    storm(&mut site, |site| {
        for (old, new) in [(0, 1), (1, 0)] {
            work();
            let asked = pair.roads[new].accepted();
            pair.order("kill", old);
            std::thread::sleep(2 * WORK);
            let searched = pair.roads[new].accepted() - asked;
            println!("{searched} connections to the standby while there was no primary");
            assert!(searched < 100, "{searched} connections to the standby");
            pair.order("promote", new);
            until_written(site, "after the promotion");
            work();
            pair.order("rewind", old);
            // A server that starts now skips the former primary, though it is listed first.
            let other = Site::start(&pair.url([old, new], "read-write"), &[]);
            until_written(&other, "by a new server");
            work();
        }
        site.kill_and_start();
    });
}

#[test]
fn a_primary_that_freezes_is_left_for_good() {
    let mut pair = Pair::start();
    let mut site = Site::start(&pair.url([0, 1], "primary"), &[]);
    storm(&mut site, |site| {
        work();
        pair.order("freeze", 0);
        pair.order("promote", 1);
        until_written(site, "after the freeze");
        // Nobody keeps the old primary from going on, but what it is told waits for a standby.
        pair.order("thaw", 0);
        work();
        pair.order("rewind", 0);
        work();
    });
}

#[test]
fn a_primary_that_is_cut_off_is_left_for_good() {
    let mut pair = Pair::start();
    let mut site = Site::start(&pair.url([0, 1], "read-write"), &[]);
    storm(&mut site, |site| {
        work();
        pair.roads[0].let_pass(Traffic::Blocked);
        std::thread::sleep(3 * WORK);
        pair.order("promote", 1);
        until_written(site, "after the promotion");
        // What was sent to the old primary arrives now.
        pair.roads[0].let_pass(Traffic::Free);
        work();
        pair.order("rewind", 0);
        pair.roads[1].let_pass(Traffic::Cut);
        pair.order("promote", 0);
        until_written(site, "after the second promotion");
        pair.order("kill", 1);
        pair.roads[1].let_pass(Traffic::Free);
        work();
    });
}
