//! Dumps in a folder whose copy was interrupted.

use std::path::PathBuf;

use serde_json::json;

use super::copying::{Served, batch_rows, copy, equal, filled, start};
use super::deleting_extra::{GOOD, dump};
use super::*;

/// The parts of a table.
fn parts(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// Kills a copy to `dump:d` once it has written to this table.
fn killed(site: &Site, from: &str, table: &str, more: &[&str]) {
    let mut child = start(site, from, "dump:d", more);
    let folder = site.folder.join("d").join(table);
    until("a part", || {
        parts(&folder).iter().any(|part| std::fs::metadata(part).is_ok_and(|part| part.len() > 0))
    });
    child.kill().expect("it runs");
    child.wait().expect("it ended");
}

#[test]
fn a_dump_that_is_begun_again_without_its_state_keeps_nothing_of_the_interrupted_one() {
    let (source, name, from) = filled(Site::sqlite(), 3000);
    let (here, client) = (&source.site, source.client());
    let table = Table::new(&client, &name);
    killed(here, &from, &table.name, &["--rate-limit", "50"]);
    table.delete("a", "000001", Some("*")).expect(204);
    table.replace("a", "000002", &json!({ "N": "new" }), None).expect(204);
    let folder = here.folder.join("d");
    // Whoever removes the state alone is told what else to remove, wherever the next state is.
    let files = parts(&folder).into_iter().filter(|path| path.is_file());
    files.for_each(|path| std::fs::remove_file(path).expect("a file"));
    assert!(!folder.join("copy.state").exists());
    for more in [&[][..], &["--state", "other.state"]] {
        let words = [name.as_str(), "parts of another copy", "remove them"];
        here.ends(&[&["copy", &from, "dump:d"], more].concat(), 2, &words);
    }
    here.ends(&["copy", &from, "dump:d", "--restart"], 2, &["there is no state"]);
    assert!(!folder.join("manifest.json").exists());
    std::fs::remove_dir_all(&folder).expect("a folder");
    assert_eq!(copy(here, &from, "dump:d", &[])["copied"], 2999);
    equal(here, &from, "dump:d", &[]);
}

#[test]
fn a_dump_that_is_begun_again_removes_only_what_a_copy_has_written() {
    let (source, name, from) = filled(Site::sqlite(), 3000);
    let here = &source.site;
    killed(here, &from, &name, &["--rate-limit", "50"]);
    let own = format!("d/{name}/notes.txt");
    here.write(&own, "mine");
    Table::new(&source.client(), &name).delete("a", "000001", Some("*")).expect(204);
    let changed = ["copy", &from, "dump:d", "--filter", "N ge 1000"];
    here.ends(&changed, 2, &["a different --include, --exclude or --filter", "--restart"]);
    assert!(here.folder.join("d/copy.state").exists());
    here.ends(&[&changed[..], &["--restart"]].concat(), 0, &["2000 entities"]);
    assert_eq!(here.json(&["count", "dump:d"])["entities"], 2000);
    assert!(here.folder.join(own).exists() && !here.folder.join("d/copy.state").exists());
}

#[test]
fn a_resumed_dump_tells_what_a_power_failure_has_taken_from_its_finished_parts() {
    let source = Served::new(Site::sqlite());
    let client = source.client();
    for name in ["Afirst", "Bsecond"] {
        client.create_table(name).expect(201);
    }
    let [first, second] = ["Afirst", "Bsecond"].map(|name| Table::new(&client, name));
    batch_rows(&first, "a", 1000);
    batch_rows(&second, "b", 3000);
    let (here, from) = (&source.site, source.connection_string());
    killed(here, &from, "Bsecond", &["--concurrency", "1", "--rate-limit", "100"]);
    let part = parts(&here.folder.join("d/Afirst")).remove(0);
    let whole = std::fs::read(&part).expect("a part");
    let first_frame = zstd::zstd_safe::find_frame_compressed_size(&whole).expect("a frame");
    assert!(first_frame < whole.len());
    // A page of it, and a part of a page.
    for (length, word) in [(first_frame, "entities in all"), (whole.len() - 1, "is damaged")] {
        std::fs::write(&part, &whole[..length]).expect("a file");
        here.ends(&["copy", &from, "dump:d"], 1, &[word, "as after a power failure"]);
        assert!(!here.folder.join("d/manifest.json").exists());
    }
    std::fs::write(&part, &whole).expect("a file");
    assert_eq!(copy(here, &from, "dump:d", &[])["copied"], 4000);
    equal(here, &from, "dump:d", &["--timestamps"]);
}

#[test]
fn a_timestamp_in_the_future_is_rejected_by_databases_whatever_the_mode() {
    for site in Site::both() {
        let line = |row: &str, time: &str| {
            format!(
                "{{\"PartitionKey\":\"p\",\"RowKey\":\"{row}\",\"Timestamp@odata.type\":\"Edm.DateTime\",\
                 \"Timestamp\":\"{time}\",\"N\":1}}"
            )
        };
        let lines = [
            line("end", "9999-12-31T23:59:59.9999999Z"),
            line("later", "2200-01-01T00:00:00Z"),
            line("past", "2020-01-01T00:00:00Z"),
        ];
        dump(&site, "dump", &lines.each_ref().map(String::as_str));
        for mode in ["insert", "skip", "merge", "replace"] {
            let arguments = ["copy", "dump:dump", &site.url, "--yes", "--mode", mode, "--state", "s"];
            site.ends(&arguments, 3, &[]);
            let rejects = site.read("s.rejects.jsonl");
            assert!(rejects.contains("its Timestamp lies in the future"), "{rejects}");
            assert_eq!(site.json(&["count", &site.url])["entities"], 1);
        }
        // Endpoints give entities their own, so a file on the way to one may have any.
        let target = Served::new(Site::sqlite());
        site.write("People.ndjson", lines.join("\n"));
        assert_eq!(copy(&site, "People.ndjson", &target.connection_string(), &[])["copied"], 3);
    }
}

#[test]
fn a_version_behind_the_end_of_time_leaves_its_table_readable() {
    for site in Site::both() {
        dump(&site, "dump", &GOOD[..2]);
        site.ends(&["copy", "dump:dump", &site.url], 0, &[]);
        // A merge into the last version has stored this.
        site.execute("UPDATE entities SET modified = 3155378976000000000 WHERE rk = '1'");
        let account = crate::support::server::development();
        let server = site.server(&["--accounts", &account.setting()]);
        let client = Client::path_style(server.address(), account);
        let table = Table::new(&client, "People");
        assert_eq!(table.count(), 2);
        assert_eq!(table.entity("p", "1")["Timestamp"], "9999-12-31T23:59:59.9999999Z");
        table.merge("p", "1", &json!({ "More": 1 }), Some("*")).expect(204);
        table.replace("p", "1", &json!({ "N": 3 }), None).expect(204);
        assert_eq!(table.entity("p", "1")["N"], 3);
        assert_eq!(table.count(), 2);
    }
}
