//! `rowhouse copy --mirror` from sources that cannot be read as a whole.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::endless_sources::{connected, scripted_people};
use super::*;
use crate::support::scripted::{answer, json_answer, scripted};

pub const GOOD: [&str; 3] = [
    r#"{"PartitionKey":"p","RowKey":"1","N":1}"#,
    r#"{"PartitionKey":"p","RowKey":"2","N":2}"#,
    r#"{"PartitionKey":"p","RowKey":"3","N":3}"#,
];
/// The second one, as it cannot be read.
const BAD: &str = r#"{"PartitionKey":"p","RowKey":"2","T@odata.type":"Edm.DateTime","T":"never"}"#;

/// A target that has all three.
fn target() -> Site {
    let site = Site::sqlite();
    site.write("People.json", format!("[{}]", GOOD.join(",")));
    site.ends(&["copy", "People.json", &site.url], 0, &[]);
    site
}

/// Demands that a copy deletes nothing, says why, and does not succeed.
#[track_caller]
fn deletes_nothing(site: &Site, from: &str, more: &[&str], status: i32) {
    let deleting = ["--mode", "replace", "--mirror", "--yes"];
    let to = format!("{}#devstoreaccount1", site.url);
    let output = site.run(&[&["copy", from, &to][..], &deleting, more].concat());
    assert_eq!(output.status.code(), Some(status), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("--mirror") && said.contains("deleted"), "{said}");
    assert_eq!(site.json(&["count", &site.url])["entities"], 3);
}

/// Makes a dump in a folder of these lines.
pub fn dump(site: &Site, folder: &str, lines: &[&str]) {
    let part = zstd::bulk::compress((lines.join("\n") + "\n").as_bytes(), 1).expect("zstd");
    let entities = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let keys: Vec<_> =
        entities.map(|entity| ["PartitionKey", "RowKey"].map(|key| entity[key].clone())).collect();
    let (first, last) = (&keys[0], &keys[keys.len() - 1]);
    let sha256: String = Sha256::digest(&part).iter().map(|byte| format!("{byte:02x}")).collect();
    let manifest = json!({
        "format": "rowhouse-dump", "version": 1, "created": "2026-01-01T00:00:00Z",
        "tables": [{ "name": "People", "entities": lines.len(), "parts": [{
            "file": "People/000001-0001.ndjson.zst", "entities": lines.len(), "bytes": part.len(),
            "sha256": sha256, "first": first, "last": last,
        }] }],
    });
    site.write(format!("{folder}/People/000001-0001.ndjson.zst"), part);
    site.write(format!("{folder}/manifest.json"), manifest.to_string());
}

#[test]
fn nothing_is_extra_if_an_entity_of_a_file_or_dump_was_rejected() {
    let site = target();
    let lines = [GOOD[0], BAD];
    site.write("People.json", format!("[{}]", lines.join(",")));
    deletes_nothing(&site, "People.json", &[], 3);
    dump(&site, "dump", &lines);
    deletes_nothing(&site, "dump:dump", &[], 3);
    // Changes alone are copied: the entity that was not understood is no change.
    deletes_nothing(&site, "dump:dump", &["--since", "2020-01-01"], 3);
    deletes_nothing(&site, "People.json", &["--since", "2020-01-01"], 3);
    // What can be read as a whole is enough to delete by.
    dump(&site, "whole", &GOOD[..1]);
    let deleting = ["copy", "dump:whole", &site.url, "--mode", "replace", "--mirror", "--yes"];
    site.ends(&deleting, 0, &[]);
    assert_eq!(site.json(&["count", &site.url])["entities"], 1);
}

#[test]
fn nothing_is_extra_if_an_endpoint_sends_what_is_not_understood_while_places_are_compared() {
    let site = target();
    let from = scripted_people(|target| {
        // Nothing has changed, and the keys that are compared are not complete.
        let rows = if target.contains("Timestamp%20ge") { "" } else { r#"{"PartitionKey":"p"}"# };
        (String::new(), format!("{{\"value\":[{rows}]}}").into_bytes())
    });
    deletes_nothing(&site, &from, &["--since", "2020-01-01"], 1);
}

#[test]
fn what_is_not_understood_is_neither_counted_nor_deleted_as_if_it_were_not_there() {
    let site = Site::sqlite();
    let place = scripted_people(|_| (String::new(), b"{\"value\":[{\"PartitionKey\":\"p\"}]}".to_vec()));
    site.fails(&["count", &place], &["People", "not understood: 1 or more"]);
    site.fails(&["delete-where", &place, "People", "N eq 1", "--yes"], &["People", "not understood"]);
    dump(&site, "dump", &[GOOD[0], BAD]);
    site.fails(&["count", "dump:dump"], &["People", "not understood"]);
    site.write("People.json", format!("[{},{BAD}]", GOOD[0]));
    site.fails(&["count", "People.json"], &["People", "not understood"]);
}

#[test]
fn what_lies_in_a_folder_within_the_folder_is_neither_read_nor_taken_for_absent() {
    let site = target();
    site.write("in/People.json", format!("[{},{}]", GOOD[0], GOOD[2]));
    site.write("in/older/People.json", "[]");
    let output = site.ends(&["copy", "in", "dump:out"], 0, &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("older: not read: ") && !said.contains("People.json"), "{said}");
    assert_eq!(site.json(&["count", "dump:out"])["entities"], 2);
    for more in [&[][..], &["--dry-run"]] {
        deletes_nothing(&site, "in", more, 2);
    }
    for whole in
        [&["count", "in"][..], &["verify", "in", "dump:out"], &["copy", "in", "dump:other", "--verify"]]
    {
        site.ends(whole, 2, &["not read"]);
    }
    // Only folders have nothing to read.
    std::fs::remove_file(site.folder.join("in/People.json")).expect("a file");
    site.ends(&["copy", "in", "dump:third"], 2, &["in has no files to read"]);
}

#[test]
fn a_table_is_deleted_only_if_the_source_says_that_it_lacks_it() {
    let site = target();
    let to = format!("{}#devstoreaccount1", site.url);
    // The list is cut; the source answers for each table. Or it has got the table since the first look.
    for (is_new, status, told) in
        [(false, 1, "FROM has the table People, but does not list it"), (true, 0, "")]
    {
        let was_asked = AtomicBool::new(false);
        let people = format!("{{\"value\":[{}]}}", GOOD.join(","));
        let from = connected(&scripted(move |request| {
            let asked = crate::support::scripted::target(request);
            if is_new && asked.contains("/People") && !was_asked.swap(true, Ordering::SeqCst) {
                let none =
                    r#"{"odata.error":{"code":"TableNotFound","message":{"lang":"en-US","value":"None."}}}"#;
                return Some(answer("404 Not Found\r\nContent-Type: application/json", none));
            }
            let body = match &*asked {
                asked if asked.contains("comp=acl") => "<SignedIdentifiers/>",
                asked if asked.contains("comp=properties") => "<StorageServiceProperties/>",
                asked if asked.contains("/Tables") && was_asked.load(Ordering::SeqCst) => {
                    "{\"value\":[{\"TableName\":\"Cities\"},{\"TableName\":\"People\"}]}"
                }
                asked if asked.contains("/Tables") => "{\"value\":[{\"TableName\":\"Cities\"}]}",
                asked if asked.contains("/People") => people.as_str(),
                _ => "{\"value\":[]}",
            };
            Some(json_answer(body))
        }));
        site.ends(&["copy", &from, &to, "--mirror", "--yes"], status, &[told]);
        assert_eq!(site.json(&["count", &site.url])["entities"], 3);
    }
}
