//! A URL that lists the hosts of one PostgreSQL: servers find its primary and leave a former one, nothing
//! acknowledged is lost, and nothing older than that is read.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::crash::storm;
use super::line::Line;
use super::outages::{answer, until_well};
use super::pair::Pair;
use super::site::Site;
use crate::support::postgres::{execute, text};
use crate::support::proxy::Traffic;
use crate::support::{pace, until, work_for};

/// How long clients work between two faults.
const WORK: Duration = Duration::from_millis(700);

fn work() {
    work_for(WORK);
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

/// What `rowhouse check` finds of the hosts of a URL, with `true` for what is fine.
fn check(url: &str) -> Vec<(bool, String)> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rowhouse"));
    command.args(["check", "--json", "--listen", "127.0.0.1:0", "--database-url", url]);
    let output = command.env("ROWHOUSE_ALLOW_DEVELOPMENT_ACCOUNT", "true").output().expect("it runs");
    let told: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let findings = told["checks"].as_array().expect("findings").iter();
    let of_hosts = findings.filter(|finding| matches!(finding["name"].as_str(), Some("hosts" | "database")));
    let is_fine = |finding: &Value| finding["ok"] == true && finding["warning"] == false;
    of_hosts
        .map(|finding| (is_fine(finding), finding["found"].as_str().expect("a text").to_owned()))
        .filter(|(_, found)| !found.contains("answers at"))
        .collect()
}

#[test]
fn a_check_names_the_host_that_it_found_and_those_that_it_could_not_reach() {
    let mut pair = Pair::start();
    let [first, second] = [0, 1].map(|server: usize| format!("127.0.0.1:{}", pair.roads[server].port()));
    let url = pair.url([1, 0], "read-write");
    let both = format!("{second} is a standby, {first} is a primary; {first} is used");
    assert_eq!(check(&url), [(true, both.clone())]);
    let [(true, found), (false, any)] = &check(&pair.url([0, 1], "any"))[..] else { panic!("two findings") };
    assert!(found.ends_with(&format!("{first} is used")) && any.contains("takes any"), "{found}, {any}");
    pair.roads[1].let_pass(Traffic::Blocked);
    let [(true, found), (false, away)] = &check(&url)[..] else { panic!("two findings") };
    assert_eq!(found, &format!("{first} is a primary; {first} is used"));
    assert_eq!(away, &format!("{second} cannot be reached: no answer in time"));
    pair.roads[1].let_pass(Traffic::Free);
    pair.roads[0].let_pass(Traffic::Cut);
    let [(false, found)] = &check(&url)[..] else { panic!("a finding") };
    assert!(found.contains(&format!("{second}: it is a standby; {first}: ")), "{found}");
    pair.roads[0].let_pass(Traffic::Free);
    // The first one goes on: nobody has fenced it.
    pair.order("promote", 1);
    let [(true, _), (false, found)] = &check(&url)[..] else { panic!("two findings") };
    assert_eq!(found, &format!("{second} and {first} are primaries"));
}

#[test]
fn a_standby_that_is_listed_first_is_skipped() {
    let pair = Pair::start();
    let [primary, standby] =
        [("read-write", [1, 0]), ("standby", [0, 1])].map(|(w, order)| pair.url(order, w));
    let urls = ["--migrate-url", &primary, "--secondary-database-url", &standby];
    let site = Site::start(&primary, &urls);
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
    // Any host will do only for what needs no primary.
    let any = Site::start(&pair.url([0, 1], "any"), &[]);
    assert_eq!(answer(&mut Line::new(&any.address), &any.client().request("GET", "/Tables")).status, 200);
    let mut migrate = Command::new(env!("CARGO_BIN_EXE_rowhouse"));
    let output =
        migrate.args(["migrate", "--database-url", &pair.url([1, 0], "any")]).output().expect("it runs");
    assert!(String::from_utf8_lossy(&output.stderr).contains("leads to a standby"), "{output:?}");
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
            work_for(2 * WORK);
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

/// Nobody has fenced it, so it would take writes that its rewind undoes.
#[test]
fn a_former_primary_that_still_runs_is_not_used_when_sessions_of_the_new_one_are_lost() {
    let mut pair = Pair::start();
    let site = Site::start(&pair.url([0, 1], "read-write"), &["--workers", "1"]);
    until_written(&site, "at first");
    pair.order("freeze", 0);
    pair.order("promote", 1);
    until_written(&site, "after the freeze");
    pair.order("thaw", 0);
    let asked = pair.roads[0].accepted();
    let client = site.client();
    let read = client.request("GET", "/Tables");
    let assert_not_asked = |pair: &Pair| {
        answer(&mut Line::new(&site.address), &read);
        assert_eq!(pair.roads[0].accepted(), asked, "the former primary was asked");
    };
    let end_sessions =
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'rowhouse'";
    execute(&pair.direct_url(1), end_sessions);
    assert_not_asked(&pair);
    until_written(&site, "after the end of the sessions");
    // Idle sessions are checked before use, and get no answer.
    pair.roads[1].forget_connections();
    pace(WORK);
    assert_not_asked(&pair);
    until_written(&site, "after a firewall forgot the sessions");
    assert_not_asked(&pair);
}

#[test]
fn a_primary_that_is_cut_off_is_left_for_good() {
    let mut pair = Pair::start();
    let mut site = Site::start(&pair.url([0, 1], "read-write"), &[]);
    storm(&mut site, |site| {
        work();
        pair.roads[0].let_pass(Traffic::Blocked);
        work_for(3 * WORK);
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

/// As services do that change over without a restart: the sessions stay, and their writes are refused.
#[test]
fn a_primary_whose_sessions_only_read_from_now_on_is_left() {
    let mut pair = Pair::start();
    let mut site = Site::start(&pair.url([0, 1], "read-write"), &[]);
    storm(&mut site, |site| {
        work();
        pair.order("restrict", 0);
        let has_all = "SELECT coalesce(bool_and(replay_lsn >= pg_current_wal_lsn()), false)::text FROM pg_stat_replication";
        until("a standby that has everything", || text(&pair.direct_url(0), has_all) == "true");
        pair.order("promote", 1);
        until_written(site, "after the promotion");
        work();
        pair.order("rewind", 0);
        work();
    });
}
