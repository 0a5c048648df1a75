//! `rowhouse copy` and its kin before gateways: redirects, login pages, answers that are cut short, and
//! servers that fail for one entity.

use std::collections::HashMap;
use std::sync::Mutex;

use serde_json::json;

use super::copying::{Served, batch_rows, connection_string, copy, equal, filled, put_settings};
use super::*;
use crate::support::scripted::{answer, exchange, first_line, scripted};

/// A gateway before a server: `answer` takes a request, and how often one with its method and target was
/// seen before, and returns the answer to it; `None` passes it on. Returns a connection string.
fn gateway(
    served: &Served,
    answer: impl Fn(&str, usize) -> Option<Vec<u8>> + Send + Sync + 'static,
) -> String {
    let (server, seen) = (served.server.address().to_owned(), Mutex::new(HashMap::new()));
    let address = scripted(move |request| {
        let before = {
            let mut seen = seen.lock().expect("no panic");
            let times = seen.entry(first_line(request)).or_insert(0);
            *times += 1;
            *times - 1
        };
        answer(&String::from_utf8_lossy(request), before).or_else(|| exchange(&server, request).ok())
    });
    connection_string(&address, &served.account)
}

/// What a gateway shows to those who have not signed in.
fn login_page() -> Vec<u8> {
    let head = "200 OK\r\nContent-Type: text/html\r\nRetry-After: 0";
    answer(head, "<html><body>Please sign in.</body></html>")
}

/// A source with entities of one partition, and with one entity in each of several.
fn source() -> (Served, String, String) {
    let (source, name, place) = filled(Site::sqlite(), 300);
    let client = source.client();
    for partition in 0..10 {
        let entity = with_keys(&format!("p{partition}"), "only", json!({ "N": partition }));
        Table::new(&client, &name).seed(entity);
    }
    put_settings(&client, &name);
    (source, name, place)
}

/// The error of a server that fails.
fn failure() -> Vec<u8> {
    answer("500 Internal Server Error\r\nx-ms-retry-after-ms: 1", "failed")
}

#[test]
fn a_redirect_is_not_followed_and_nothing_counts_as_written() {
    let (source, table, from) = source();
    for (status, words) in [
        ("301 Moved Permanently", "POST /Tables"),
        ("302 Found", "POST"),
        ("307 Temporary Redirect", "PUT"),
        ("308 Permanent Redirect", "$batch"),
        ("303 See Other", "comp=acl"),
        ("302 Found", "comp=properties"),
    ] {
        let target = Served::new(Site::sqlite());
        let path = format!("/{}", target.account.name);
        let to = gateway(&target, move |request, _| {
            let line = request.lines().next().unwrap_or_default().replacen(&path, "", 1);
            let moved = format!("{status}\r\nLocation: https://elsewhere.example/x?sig=secret");
            (!line.starts_with("GET") && line.contains(words)).then(|| answer(&moved, ""))
        });
        let copying = ["copy", &from, &to, "--state", &format!("{}.state", fresh_name())];
        let told = [&status[..3], "https://elsewhere.example/x"];
        let output = source.site.ends(&copying, 1, &told);
        assert!(!String::from_utf8_lossy(&output.stderr).contains("secret"), "{output:?}");
        if words == "POST" {
            let written = target.client().request("GET", &format!("/{table}()")).send();
            assert!(written.status == 404 || !written.text().contains("PartitionKey"), "{written:?}");
        }
    }
    // Reading is no better.
    let moved = gateway(&source, |_, _| {
        Some(answer("301 Moved Permanently\r\nLocation: https://elsewhere.example", ""))
    });
    source.site.ends(&["count", &moved], 1, &["301", "https://elsewhere.example"]);
}

#[test]
fn a_login_page_or_half_an_answer_is_no_answer() {
    let (source, _, place) = source();
    let target = Served::new(Site::sqlite());
    // The first answer to each kind of request is a page, the second is cut short and has a fitting length.
    let server = source.server.address().to_owned();
    let from = gateway(&source, move |request, seen| match seen {
        0 => Some(login_page()),
        1 => {
            let whole = exchange(&server, request.as_bytes()).ok()?;
            let whole = String::from_utf8_lossy(&whole).into_owned();
            let (head, body) = whole.split_once("\r\n\r\n")?;
            let kept = |line: &&str| {
                let name = line.to_ascii_lowercase();
                name.starts_with("content-type") || name.starts_with("x-ms-continuation")
            };
            let headers: Vec<&str> = head.lines().filter(kept).collect();
            let half = body.char_indices().nth(body.chars().count() / 2).map_or(0, |(at, _)| at);
            Some(answer(&format!("200 OK\r\n{}\r\nRetry-After: 0", headers.join("\r\n")), &body[..half]))
        }
        _ => None,
    });
    let to = gateway(&target, |_, seen| (seen == 0).then(login_page));
    assert_eq!(copy(&source.site, &from, &to, &[])["rejected"], 0);
    equal(&source.site, &place, &target.connection_string(), &[]);
    // If there is never another one, nothing was copied.
    let target = Served::new(Site::sqlite());
    let to = gateway(&target, |request, _| {
        let line = request.lines().next().unwrap_or_default();
        (line.starts_with("POST") && !line.contains("/Tables")).then(login_page)
    });
    source.site.ends(&["copy", &place, &to], 1, &["200 is not a valid answer", "TO: POST http://"]);
}

#[test]
fn an_entity_that_the_server_fails_for_is_rejected_by_its_name_and_the_others_are_copied() {
    let (source, table, place) = source();
    let target = Served::new(Site::sqlite());
    let to = gateway(&target, |request, _| {
        let is_write = !request.starts_with("GET") && request.contains("000123");
        is_write.then(failure)
    });
    let output = source.site.ends(&["copy", &place, &to, "--json", "--state", "s"], 3, &[]);
    let done: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&done["copied"], &done["rejected"]), (&json!(309), &json!(1)), "{done}");
    let rejects = source.site.read("s.rejects.jsonl");
    let named = format!("{table}(PartitionKey='a',RowKey='000123'): 500");
    assert!(rejects.lines().count() == 1 && rejects.contains(&named), "{rejects}");
    // A server that fails for all of them is at fault itself.
    let target = Served::new(Site::sqlite());
    let to = gateway(&target, |request, _| {
        let is_write = request.contains("PartitionKey\":");
        is_write.then(failure)
    });
    let words = ["fails for each entity", "500"];
    source.site.ends(&["copy", &place, &to, "--state", "all"], 1, &words);
}

#[test]
fn a_gateway_that_knows_no_such_page_does_not_make_an_entity_absent() {
    let (source, table, place) = source();
    let target = Served::new(Site::sqlite());
    copy(&source.site, &place, &target.connection_string(), &[]);
    let there = target.client();
    Table::new(&there, &table).seed(with_keys("extra", "1", json!({})));
    let from = gateway(&source, |request, _| {
        let is_look = request.starts_with("GET") && request.contains("(PartitionKey=");
        is_look.then(|| answer("404 Not Found\r\nContent-Type: text/html", "<html></html>"))
    });
    let deleting = ["copy", &from, &target.connection_string(), "--mirror", "--yes"];
    source.site.ends(&deleting, 1, &["404", "not an answer of a Table service"]);
    assert_eq!(Table::new(&there, &table).count(), 311);
}

#[test]
fn entities_that_the_filter_does_not_select_are_neither_copied_nor_deleted() {
    let (source, table, _) = source();
    let server = source.server.address().to_owned();
    let place = gateway(&source, move |request, _| {
        let (target, rest) = request.split_once(" HTTP/1.1")?;
        let (path, query) = target.split_once('?')?;
        let is_filter = |name: &&str| name.starts_with("$filter=") || name.starts_with("%24filter=");
        let kept: Vec<&str> = query.split('&').filter(|name| !is_filter(name)).collect();
        exchange(&server, format!("{path}?{} HTTP/1.1{rest}", kept.join("&")).as_bytes()).ok()
    });
    let words = ["which the filter does not select", "$filter"];
    source.site.ends(&["delete-where", &place, &table, "N eq 7", "--yes"], 1, &words);
    source.site.ends(&["copy", &place, "dump:some", "--filter", "N eq 7"], 1, &words);
    assert_eq!(Table::new(&source.client(), &table).count(), 310);
}

#[test]
fn a_table_that_is_deleted_while_it_is_copied_does_not_end_the_copy() {
    let source = Served::new(Site::sqlite());
    let client = source.client();
    let tables = [client.table(), client.table()];
    tables.iter().for_each(|table| batch_rows(table, "a", 600));
    let dropped = tables[0].name.clone();
    let from = gateway(&source, move |request, _| {
        let line = request.lines().next().unwrap_or_default();
        // The second page, and the look whether the table is still there.
        let is_late = line.contains("NextPartitionKey") || line.contains("top=1 ");
        let body = r#"{"odata.error":{"code":"TableNotFound","message":{"lang":"en-US","value":"None."}}}"#;
        let head = "404 Not Found\r\nContent-Type: application/json";
        (line.contains(&dropped) && is_late).then(|| answer(head, body))
    });
    let told = format!("{} was deleted in FROM", tables[0].name);
    source.site.ends(&["copy", &from, "dump:copied"], 0, &[&told]);
    let copied = source.site.json(&["count", "dump:copied"]);
    let counts = tables.each_ref().map(|table| copied["tables"][&table.name].clone());
    assert_eq!(counts, [500, 600]);
}

#[test]
fn a_table_that_fails_does_not_keep_the_others_from_being_copied() {
    let source = Served::new(Site::sqlite());
    let client = source.client();
    for name in ["Abad", "Bgood", "Cbad"] {
        client.create_table(name).expect(201);
        batch_rows(&Table::new(&client, name), "a", 10);
    }
    let from = gateway(&source, |request, _| {
        let line = request.lines().next().unwrap_or_default();
        line.contains("bad()").then(|| answer("400 Bad Request\r\nContent-Type: text/html", "<html></html>"))
    });
    let target = Served::new(Site::sqlite());
    let copying = ["copy", &from, &target.connection_string(), "--state", "s"];
    let words = ["Abad: FROM: ", "1 other tables failed too", "Cbad: failed: FROM: ", "continues the copy"];
    source.site.ends(&copying, 1, &words);
    let there = target.client();
    let count = |name| Table::new(&there, name).count();
    assert_eq!(["Abad", "Bgood", "Cbad"].map(count), [0, 10, 0]);
    // What failed is tried again, and the rest is not copied again.
    let output = source.site.ends(&[&copying[..], &["--json"]].concat(), 1, &[]);
    let failed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(failed["failed"].as_object().map(serde_json::Map::len), Some(2), "{failed}");
    assert_eq!(failed["tables"]["Bgood"]["copied"], 10, "{failed}");
    // Credentials that are refused fail for every table, so the first refusal ends the copy.
    let refusing = gateway(&source, |request, _| {
        let body = "<error><code>AuthenticationFailed</code><message>No.</message></error>";
        let line = request.lines().next().unwrap_or_default();
        line.contains("bad()").then(|| answer("403 Forbidden\r\nContent-Type: application/xml", body))
    });
    let output = source.site.ends(&["copy", &refusing, "dump:none"], 1, &["403 AuthenticationFailed"]);
    assert!(output.stdout.is_empty(), "{output:?}");
}

#[test]
fn policies_that_are_not_read_are_neither_copied_without_a_word_nor_equal() {
    let (source, ..) = source();
    let refusing = |code: &'static str| {
        gateway(&source, move |request, _| {
            let body = format!("<error><code>{code}</code><message>No.</message></error>");
            let head = "403 Forbidden\r\nContent-Type: application/xml";
            request.lines().next().unwrap_or_default().contains("comp=acl").then(|| answer(head, &body))
        })
    };
    let (here, from) = (&source.site, refusing("AuthorizationPermissionMismatch"));
    let target = Served::new(Site::sqlite());
    let to = target.connection_string();
    let words = ["the policies of FROM were not read: 403 AuthorizationPermissionMismatch"];
    let copied = here.ends(&["copy", &from, &to, "--json"], 0, &[]);
    assert!(String::from_utf8_lossy(&copied.stderr).contains(words[0]), "{copied:?}");
    let summary: Value = serde_json::from_slice(&copied.stdout).expect("JSON");
    assert!(summary["remarks"][0].as_str().is_some_and(|remark| remark.contains(words[0])), "{summary}");
    here.ends(&["verify", &from, &to, "--recheck-delay", "0"], 4, &[words[0], "not proved equal"]);
    // Keys that have been changed are no want of permission.
    let from = refusing("AuthenticationFailed");
    here.ends(&["copy", &from, "dump:other"], 1, &["403 AuthenticationFailed"]);
    here.ends(&["verify", &from, &to, "--recheck-delay", "0"], 1, &["403 AuthenticationFailed"]);
}

#[test]
fn an_empty_filter_is_refused_before_a_place_is_opened() {
    let (source, table, place) = source();
    let nobody = "AccountName=a;AccountKey=AA==;TableEndpoint=http://127.0.0.1:1/a";
    for place in [nobody, "dump:none", &place] {
        for filter in ["", "N eq"] {
            for arguments in [
                &["count", place, "--filter", filter][..],
                &["copy", place, "dump:new", "--filter", filter],
                &["copy", place, "dump:new", "--dry-run", "--filter", filter],
                &["verify", place, "dump:new", "--filter", filter],
            ] {
                source.site.ends(arguments, 2, &["--filter: "]);
            }
            source.site.ends(&["delete-where", place, &table, filter, "--yes"], 2, &["FILTER: "]);
        }
    }
    assert!(!source.site.folder.join("new").exists());
    assert_eq!(Table::new(&source.client(), &table).count(), 310);
}

#[test]
fn a_filter_reaches_an_endpoint_whole() {
    let (source, table, place) = source();
    let here = &source.site;
    let counted = |filter: &str| here.json(&["count", &place, "--filter", filter])["entities"].clone();
    assert_eq!(counted("(N lt 5) and (PartitionKey eq 'a')"), 5);
    assert_eq!(counted("(N lt 5) or (N ge 295)"), 15);
    assert_eq!(counted("((N lt 5))"), 10);
    let since = ["--since", "2020-01-01", "--filter", "(N lt 5) or (N ge 295)"];
    assert_eq!(copy(here, &place, "dump:since", &since)["copied"], 15);
    let verified = ["verify", &place, "dump:since", "--filter", "(N lt 5) or (N ge 295)"];
    here.ends(&verified, 0, &["equal"]);
    let deleted = here.json(&["delete-where", &place, &table, "(N lt 5) or (N ge 295)", "--yes"]);
    assert_eq!(deleted["entities"], 15);
    // An endpoint of this machine is not reached through a proxy.
    let proxy = "http://127.0.0.1:1";
    let variables = [("HTTP_PROXY", proxy), ("ALL_PROXY", proxy)];
    assert_eq!(printed(&here.run_with(&["count", &place, "--json"], &variables))["entities"], 295);
}
