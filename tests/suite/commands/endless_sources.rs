//! Endpoints and dumps that never come to an end, or hold something else than entities.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::copying::copy;
use super::deleting_extra::dump;
use super::files::most_memory;
use super::*;
use crate::support::scripted::{answer, scripted, target};

/// Further headers of an answer with status 200, each with its line end, and the body.
pub type ScriptedAnswer = (String, Vec<u8>);

/// A server that answers by the target of a request; returns a connection string.
pub fn source(script: impl Fn(&str) -> ScriptedAnswer + Send + Sync + 'static) -> String {
    connected(&scripted(move |request| {
        let (headers, body) = script(&target(request));
        Some(answer(&format!("200 OK\r\n{headers}Content-Type: application/json"), body))
    }))
}

/// The connection string of such a server.
pub fn connected(address: &str) -> String {
    format!("AccountName=scripted;AccountKey={MASTER};TableEndpoint=http://{address}/scripted")
}

/// Answers requests for the list of tables with People, and for its policies and the properties with none.
pub fn scripted_people(entities: impl Fn(&str) -> ScriptedAnswer + Send + Sync + 'static) -> String {
    source(move |target| {
        let known = [
            ("comp=acl", "<SignedIdentifiers/>"),
            ("comp=properties", "<StorageServiceProperties/>"),
            ("/Tables", "{\"value\":[{\"TableName\":\"People\"}]}"),
        ];
        match known.iter().find(|(part, _)| target.contains(part)) {
            Some((_, text)) => (String::new(), text.as_bytes().to_vec()),
            None => entities(target),
        }
    })
}

fn tokens(partition: &str) -> String {
    format!("x-ms-continuation-NextPartitionKey: {partition}\r\nx-ms-continuation-NextRowKey: r\r\n")
}

fn page(rows: &[&str]) -> Vec<u8> {
    let row = |row: &&str| {
        format!("{{\"PartitionKey\":\"p\",\"RowKey\":\"{row}\",\"odata.etag\":\"W/\\\"x\\\"\"}}")
    };
    format!("{{\"value\":[{}]}}", rows.iter().map(row).collect::<Vec<_>>().join(",")).into_bytes()
}

/// A number that is another each time.
fn counter() -> impl Fn() -> usize {
    let number = AtomicUsize::new(0);
    move || number.fetch_add(1, Ordering::Relaxed)
}

/// Demands that each command that reads entities fails; those that delete may have deleted what they have read so far.
#[track_caller]
fn reading_fails(from: &str, words: &[&str]) {
    let site = Site::sqlite();
    let words = &[&["People"], words].concat();
    let to = format!("{}#devstoreaccount1", site.url);
    site.ends(&["copy", from, &to], 1, words);
    site.ends(&["verify", from, &to], 1, words);
    site.ends(&["count", from], 1, words);
}

#[test]
fn what_comes_again_ends_every_command() {
    // In a circle, whose pages may differ.
    let circle = |target: &str| -> ScriptedAnswer {
        let next = match target {
            asked if asked.contains("NextPartitionKey=a") => "b",
            asked if asked.contains("NextPartitionKey=b") => "c",
            _ => "a",
        };
        (tokens(next), page(&[]))
    };
    for (from, words) in [
        (scripted_people(|_| (tokens("same"), page(&[]))), "continuation token again"),
        (scripted_people(circle), "continuation token again"),
        // Rows that have no order within a page.
        (scripted_people(|_| (String::new(), page(&["1", "3", "2"]))), "order of keys"),
        (scripted_people(|_| (String::new(), page(&["1", "1"]))), "order of keys"),
    ] {
        reading_fails(&from, &[words]);
        let deleting = ["delete-where", &from, "People", "N eq 1", "--yes"];
        Site::sqlite().ends(&deleting, 1, &["People", words]);
    }
    // The same page again with other tokens.
    let next = counter();
    let from = scripted_people(move |_| (tokens(&format!("n{}", next())), page(&["1", "2"])));
    reading_fails(&from, &["order of keys"]);
    let next = counter();
    let from = scripted_people(move |_| (tokens(&format!("n{}", next())), page(&[])));
    Site::sqlite().ends(&["count", &from], 1, &["People", "only empty pages"]);
}

#[test]
fn a_list_of_tables_without_end_is_an_error() {
    let site = Site::sqlite();
    let again = "x-ms-continuation-NextTableName: again\r\n";
    let from = source(|_| (again.to_owned(), b"{\"value\":[{\"TableName\":\"People\"}]}".to_vec()));
    site.ends(&["count", &from], 1, &["/Tables", "continuation token again"]);
    let next = counter();
    let from = source(move |_| {
        let page = next();
        let names: Vec<_> = (0..20_000).map(|n| format!("{{\"TableName\":\"t{page}x{n}\"}}")).collect();
        let token = format!("x-ms-continuation-NextTableName: t{page}\r\n");
        (token, format!("{{\"value\":[{}]}}", names.join(",")).into_bytes())
    });
    site.ends(&["count", &from], 1, &["tables, so the list may never end"]);
}

#[test]
fn a_page_of_things_that_are_no_entities_takes_no_more_memory_than_its_text() {
    let site = Site::sqlite();
    let to = format!("{}#devstoreaccount1", site.url);
    let body = format!("{{\"value\":[{}{{}}]}}", "{},".repeat(10_000_000)).into_bytes();
    let from = scripted_people(move |_| (String::new(), body.clone()));
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_rowhouse"));
    command.args(["copy", &from, &to, "--progress", "plain"]);
    let mut child =
        command.current_dir(&site.folder).stderr(std::process::Stdio::piped()).spawn().expect("it runs");
    let most = most_memory(&mut child);
    let output = child.wait_with_output().expect("its end");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("more than 10000 entities"), "{output:?}");
    assert!(most > 0 && most < 250 << 20, "{most} bytes");
    // Small pages of them without end.
    let next = counter();
    let from = scripted_people(move |_| {
        let token = tokens(&format!("n{}", next()));
        (token, b"{\"value\":[{},1,{}]}".to_vec())
    });
    site.ends(&["copy", &from, &to], 1, &["People", "no entities"]);
}

#[test]
fn blank_lines_of_a_dump_are_no_entities_and_other_lines_without_keys_are_few() {
    let site = Site::sqlite();
    let entity = r#"{"PartitionKey":"p","RowKey":"1","N":1}"#;
    dump(&site, "blank", &[&vec![""; 100_000][..], &[entity], &vec!["  "; 100_000][..]].concat());
    site.ends(&["copy", "dump:blank", &site.url, "--state", "s"], 0, &[]);
    assert!(!site.folder.join("s.rejects.jsonl").exists());
    assert_eq!(site.json(&["count", "dump:blank"])["entities"], 1);
    dump(&site, "other", &[&vec!["x"; 1_000_000][..], &[entity]].concat());
    site.ends(&["copy", "dump:other", &site.url, "--state", "s"], 1, &["People", "no entities"]);
    assert!(
        std::fs::metadata(site.folder.join("s.rejects.jsonl")).is_ok_and(|rejects| rejects.len() < 1 << 20)
    );
    site.ends(&["verify", "dump:other", &site.url], 1, &["People", "no entities"]);
}

/// The number that an option of a target has.
fn number(target: &str, option: &str) -> Option<usize> {
    let value = target.split(['?', '&']).find_map(|pair| pair.strip_prefix(option))?;
    Some(value.parse().expect("a number"))
}

fn rows_asked(target: &str) -> usize {
    number(target, "$top=").or(number(target, "%24top=")).unwrap_or(1000)
}

/// Azurite limits a page by its entities alone.
#[test]
fn a_page_of_any_size_is_read_by_asking_for_fewer_entities() {
    const ENTITIES: usize = 300;
    let site = Site::sqlite();
    let text = "x".repeat(30_000);
    let from = scripted_people(move |target| {
        if target.contains("Key%20gt") {
            return (String::new(), page(&[]));
        }
        let (most, first) = (rows_asked(target), number(target, "NextRowKey=").unwrap_or(0));
        let end = ENTITIES.min(first + most);
        let properties = ["A", "B", "C", "D"].map(|name| format!(",\"{name}\":\"{text}\"")).concat();
        let entity = |row| format!("{{\"PartitionKey\":\"p\",\"RowKey\":\"{row:03}\"{properties}}}");
        let body = (first..end).map(entity).collect::<Vec<_>>().join(",");
        let token = match end {
            ENTITIES => String::new(),
            end => {
                format!("x-ms-continuation-NextPartitionKey: p\r\nx-ms-continuation-NextRowKey: {end:03}\r\n")
            }
        };
        (token, format!("{{\"value\":[{body}]}}").into_bytes())
    });
    let to = format!("{}#devstoreaccount1", site.url);
    assert_eq!(copy(&site, &from, &to, &[])["copied"], ENTITIES);
}

/// What stands in single quotes behind some words of a target.
fn quoted(target: &str, words: &str) -> Option<String> {
    let plain = target.replace("%20", " ").replace("%27", "'");
    Some(plain.split_once(words)?.1.split('\'').nth(1)?.to_owned())
}

#[test]
fn a_full_page_without_a_token_is_no_end() {
    const ENTITIES: usize = 2_100;
    let site = Site::sqlite();
    let from = scripted_people(|target| {
        let bound = |words| quoted(target, words);
        let (above, from, below) = (bound("RowKey gt"), bound("RowKey ge"), bound("RowKey lt"));
        let is_asked = |row: &String| {
            !target.contains("PartitionKey%20g")
                && above.as_ref().is_none_or(|above| row > above)
                && from.as_ref().is_none_or(|from| row >= from)
                && below.as_ref().is_none_or(|below| row < below)
        };
        let rows = (0..ENTITIES).map(|row| format!("{row:06}")).filter(is_asked);
        let rows: Vec<String> = rows.take(rows_asked(target)).collect();
        (String::new(), page(&rows.iter().map(String::as_str).collect::<Vec<_>>()))
    });
    let to = format!("{}#devstoreaccount1", site.url);
    assert_eq!(copy(&site, &from, &to, &[])["copied"], ENTITIES);
    assert_eq!(site.json(&["count", &from])["entities"], ENTITIES);
    // Tables are listed to their end as well.
    let from = source(|target| {
        let first = quoted(target, "TableName gt")
            .map_or(0, |name| name[1..].parse::<usize>().expect("a number") + 1);
        let name = |table| format!("{{\"TableName\":\"t{table:04}\"}}");
        let names = (first..1_050.min(first + 1000)).map(name).collect::<Vec<_>>().join(",");
        let list = format!("{{\"value\":[{}]}}", if target.contains("/Tables") { &names } else { "" });
        (String::new(), list.into_bytes())
    });
    let counted = site.json(&["count", &from, "--concurrency", "16"]);
    assert_eq!(counted["tables"].as_object().expect("tables").len(), 1_050);
}

#[test]
fn half_a_continuation_token_is_no_end() {
    let site = Site::sqlite();
    for token in [
        "x-ms-continuation-NextRowKey: 2\r\n",
        "x-ms-continuation-NextPartitionKey: M\u{fc}ller\r\nx-ms-continuation-NextRowKey: 2\r\n",
        "x-ms-continuation-NextPartitionKey: M\u{fc}ller\r\n",
    ] {
        let body = br#"{"value":[{"PartitionKey":"a","RowKey":"1"}]}"#;
        let from = scripted_people(move |_| (token.to_owned(), body.to_vec()));
        site.ends(&["count", &from], 1, &["half a continuation token"]);
    }
}
