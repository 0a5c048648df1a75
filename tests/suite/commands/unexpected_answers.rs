//! `rowhouse copy` and its kin before gateways: redirects, login pages, answers that are cut short, and
//! servers that fail for one entity.

use std::collections::HashMap;
use std::sync::Mutex;

use serde_json::json;

use super::copying::{Served, batch_rows, connection_string, copy, equal, status_of};
use super::*;
use crate::support::scripted::{answer, exchange, first_line, scripted};

/// A gateway before a server: `answer` takes a request, and how often one with its method and target was
/// seen before, and returns the answer to it; `None` passes it on.
fn gateway(server: &str, answer: impl Fn(&str, usize) -> Option<Vec<u8>> + Send + Sync + 'static) -> String {
    let (server, seen) = (server.to_owned(), Mutex::new(HashMap::new()));
    scripted(move |request| {
        let before = {
            let mut seen = seen.lock().expect("no panic");
            let times = seen.entry(first_line(request)).or_insert(0);
            *times += 1;
            *times - 1
        };
        answer(&String::from_utf8_lossy(request), before).or_else(|| exchange(&server, request).ok())
    })
}

/// What a gateway shows to those who have not signed in.
fn login_page() -> Vec<u8> {
    let head = "200 OK\r\nContent-Type: text/html\r\nRetry-After: 0";
    answer(head, "<html><body>Please sign in.</body></html>")
}

/// A source with entities of one partition, and with one entity in each of several.
fn source() -> (Served, String) {
    let source = Served::new(Site::sqlite());
    let client = source.client();
    let table = client.table();
    batch_rows(&client, &table, "a", 300);
    for partition in 0..10 {
        table.seed(with_keys(&format!("p{partition}"), "only", json!({ "N": partition })));
    }
    super::copying::put_settings(&client, &table);
    let name = table.name.clone();
    (source, name)
}

#[test]
fn a_redirect_is_not_followed_and_nothing_counts_as_written() {
    let (source, table) = source();
    let from = source.connection_string();
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
        let address = gateway(target.server.address(), move |request, _| {
            let line = request.lines().next().unwrap_or_default().replacen(&path, "", 1);
            let moved = format!("{status}\r\nLocation: https://elsewhere.example/x?sig=secret");
            (!line.starts_with("GET") && line.contains(words)).then(|| answer(&moved, ""))
        });
        let to = connection_string(&address, &target.account);
        let output = source.site.run(&["copy", &from, &to, "--state", &format!("{}.state", fresh_name())]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words}: {output:?}");
        assert!(said.contains(&status[..3]) && said.contains("https://elsewhere.example/x"), "{said}");
        assert!(!said.contains("secret"), "{said}");
        if words == "POST" {
            let written = target.client().request("GET", &format!("/{table}()")).send();
            assert!(written.status == 404 || !written.text().contains("PartitionKey"), "{written:?}");
        }
    }
    // Reading is no better.
    let address = gateway(source.server.address(), |_, _| {
        Some(answer("301 Moved Permanently\r\nLocation: https://elsewhere.example", ""))
    });
    let moved = connection_string(&address, &source.account);
    status_of(&source.site, &["count", &moved], 1, &["301", "https://elsewhere.example"]);
}

#[test]
fn a_login_page_or_half_an_answer_is_no_answer() {
    let (source, _) = source();
    let target = Served::new(Site::sqlite());
    // The first answer to each kind of request is a page, the second is cut short and has a fitting length.
    let server = source.server.address().to_owned();
    let reading = gateway(source.server.address(), move |request, seen| match seen {
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
    let writing = gateway(target.server.address(), |_, seen| (seen == 0).then(login_page));
    let from = connection_string(&reading, &source.account);
    let to = connection_string(&writing, &target.account);
    assert_eq!(copy(&source.site, &from, &to, &[])["rejected"], 0);
    equal(&source.site, &source.connection_string(), &target.connection_string(), &[]);
    // If there is never another one, nothing was copied.
    let target = Served::new(Site::sqlite());
    let writing = gateway(target.server.address(), |request, _| {
        let line = request.lines().next().unwrap_or_default();
        (line.starts_with("POST") && !line.contains("/Tables")).then(login_page)
    });
    let to = connection_string(&writing, &target.account);
    let output = source.site.run(&["copy", &source.connection_string(), &to]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(said.contains("200 is not a valid answer") && said.contains("TO: POST http://"), "{said}");
}

#[test]
fn an_entity_that_the_server_fails_for_is_rejected_by_its_name_and_the_others_are_copied() {
    let (source, table) = source();
    let target = Served::new(Site::sqlite());
    let address = gateway(target.server.address(), |request, _| {
        let is_write = !request.starts_with("GET") && request.contains("000123");
        is_write.then(|| answer("500 Internal Server Error\r\nx-ms-retry-after-ms: 1", "failed"))
    });
    let to = connection_string(&address, &target.account);
    let copying = ["copy", &source.connection_string(), &to, "--json", "--rejects", "r.jsonl"];
    let output = source.site.run(&copying);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let done: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&done["copied"], &done["rejected"]), (&json!(309), &json!(1)), "{done}");
    let rejects = std::fs::read_to_string(source.site.folder.join("r.jsonl")).expect("a file");
    let named = format!("{table}(PartitionKey='a',RowKey='000123'): 500");
    assert!(rejects.lines().count() == 1 && rejects.contains(&named), "{rejects}");
    // A server that fails for all of them is at fault itself.
    let target = Served::new(Site::sqlite());
    let address = gateway(target.server.address(), |request, _| {
        let is_write = request.contains("PartitionKey\":");
        is_write.then(|| answer("500 Internal Server Error\r\nx-ms-retry-after-ms: 1", "failed"))
    });
    let to = connection_string(&address, &target.account);
    let copying = ["copy", &source.connection_string(), &to, "--rejects", "all.jsonl"];
    status_of(&source.site, &copying, 1, &["fails for each entity", "500"]);
}

#[test]
fn a_gateway_that_knows_no_such_page_does_not_make_an_entity_absent() {
    let (source, table) = source();
    let target = Served::new(Site::sqlite());
    copy(&source.site, &source.connection_string(), &target.connection_string(), &[]);
    let there = target.client();
    Table::new(&there, &table).seed(with_keys("extra", "1", json!({})));
    let address = gateway(source.server.address(), |request, _| {
        let is_look = request.starts_with("GET") && request.contains("(PartitionKey=");
        is_look.then(|| answer("404 Not Found\r\nContent-Type: text/html", "<html></html>"))
    });
    let from = connection_string(&address, &source.account);
    let deleting = ["copy", &from, &target.connection_string(), "--delete-extra", "--yes"];
    status_of(&source.site, &deleting, 1, &["404", "not an answer of a Table service"]);
    assert_eq!(Table::new(&there, &table).count(), 311);
}

#[test]
fn entities_that_the_filter_does_not_select_are_neither_copied_nor_deleted() {
    let (source, table) = source();
    let server = source.server.address().to_owned();
    let address = gateway(source.server.address(), move |request, _| {
        let (target, rest) = request.split_once(" HTTP/1.1")?;
        let (path, query) = target.split_once('?')?;
        let is_filter = |name: &&str| name.starts_with("$filter=") || name.starts_with("%24filter=");
        let kept: Vec<&str> = query.split('&').filter(|name| !is_filter(name)).collect();
        exchange(&server, format!("{path}?{} HTTP/1.1{rest}", kept.join("&")).as_bytes()).ok()
    });
    let place = connection_string(&address, &source.account);
    let words = ["which the filter does not select", "$filter"];
    status_of(&source.site, &["delete-where", &place, &table, "N eq 7", "--yes"], 1, &words);
    status_of(&source.site, &["copy", &place, "dump:some", "--filter", "N eq 7"], 1, &words);
    assert_eq!(Table::new(&source.client(), &table).count(), 310);
}

#[test]
fn a_table_that_is_deleted_while_it_is_copied_does_not_end_the_copy() {
    let source = Served::new(Site::sqlite());
    let client = source.client();
    let tables = [client.table(), client.table()];
    tables.iter().for_each(|table| batch_rows(&client, table, "a", 600));
    let dropped = tables[0].name.clone();
    let address = gateway(source.server.address(), move |request, _| {
        let line = request.lines().next().unwrap_or_default();
        // The second page, and the look whether the table is still there.
        let is_late = line.contains("NextPartitionKey") || line.contains("top=1 ");
        let body = r#"{"odata.error":{"code":"TableNotFound","message":{"lang":"en-US","value":"None."}}}"#;
        let head = "404 Not Found\r\nContent-Type: application/json";
        (line.contains(&dropped) && is_late).then(|| answer(head, body))
    });
    let from = connection_string(&address, &source.account);
    let output = source.site.run(&["copy", &from, "dump:copied"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{output:?}");
    assert!(said.contains(&format!("{} was deleted in FROM", tables[0].name)), "{said}");
    let copied = source.site.json(&["count", "dump:copied"]);
    assert_eq!(
        (&copied["tables"][&tables[0].name], &copied["tables"][&tables[1].name]),
        (&json!(500), &json!(600))
    );
}

#[test]
fn policies_that_are_not_read_are_neither_copied_without_a_word_nor_equal() {
    let (source, _) = source();
    let refusing = |code: &'static str| {
        let address = gateway(source.server.address(), move |request, _| {
            let body = format!("<error><code>{code}</code><message>No.</message></error>");
            let head = "403 Forbidden\r\nContent-Type: application/xml";
            request.lines().next().unwrap_or_default().contains("comp=acl").then(|| answer(head, &body))
        });
        connection_string(&address, &source.account)
    };
    let (here, from) = (&source.site, refusing("AuthorizationPermissionMismatch"));
    let target = Served::new(Site::sqlite());
    let to = target.connection_string();
    let words = ["the policies of FROM were not read: 403 AuthorizationPermissionMismatch"];
    let copied = here.run(&["copy", &from, &to, "--json"]);
    assert!(copied.status.success(), "{copied:?}");
    assert!(String::from_utf8_lossy(&copied.stderr).contains(words[0]), "{copied:?}");
    let summary: Value = serde_json::from_slice(&copied.stdout).expect("JSON");
    assert!(summary["remarks"][0].as_str().is_some_and(|remark| remark.contains(words[0])), "{summary}");
    status_of(here, &["verify", &from, &to, "--recheck-delay", "0"], 4, &[words[0], "not proved equal"]);
    // Keys that have been changed are no want of permission.
    let from = refusing("AuthenticationFailed");
    status_of(here, &["copy", &from, "dump:other"], 1, &["403 AuthenticationFailed"]);
    status_of(here, &["verify", &from, &to, "--recheck-delay", "0"], 1, &["403 AuthenticationFailed"]);
}

#[test]
fn an_empty_filter_is_refused_before_a_place_is_opened() {
    let (source, table) = source();
    let nobody = "AccountName=a;AccountKey=AA==;TableEndpoint=http://127.0.0.1:1/a";
    for place in [nobody, "sqlite://none.db", "dump:none", &source.connection_string()] {
        for filter in ["", " ", "N eq"] {
            for arguments in [
                &["count", place, "--filter", filter][..],
                &["copy", place, "dump:new", "--filter", filter],
                &["copy", place, "dump:new", "--dry-run", "--filter", filter],
                &["verify", place, "dump:new", "--filter", filter],
            ] {
                status_of(&source.site, arguments, 2, &["--filter: "]);
            }
            status_of(&source.site, &["delete-where", place, &table, filter, "--yes"], 2, &["FILTER: "]);
        }
    }
    assert!(!source.site.folder.join("new").exists());
    assert_eq!(Table::new(&source.client(), &table).count(), 310);
}

#[test]
fn a_filter_reaches_an_endpoint_whole() {
    let (source, table) = source();
    let here = &source.site;
    let place = source.connection_string();
    let counted = |filter: &str| here.json(&["count", &place, "--filter", filter])["entities"].clone();
    assert_eq!(counted("(N lt 5) and (PartitionKey eq 'a')"), 5);
    assert_eq!(counted("(N lt 5) or (N ge 295)"), 15);
    assert_eq!(counted("((N lt 5))"), 10);
    let since = ["--since", "2020-01-01", "--filter", "(N lt 5) or (N ge 295)"];
    assert_eq!(copy(here, &place, "dump:since", &since)["copied"], 15);
    let verified = ["verify", &place, "dump:since", "--filter", "(N lt 5) or (N ge 295)"];
    status_of(here, &verified, 0, &["equal"]);
    let deleted = here.json(&["delete-where", &place, &table, "(N lt 5) or (N ge 295)", "--yes"]);
    assert_eq!(deleted["entities"], 15);
}

#[test]
fn an_endpoint_of_this_machine_is_not_reached_through_a_proxy() {
    let (source, _) = source();
    let proxy = "http://127.0.0.1:1";
    let variables = [("HTTP_PROXY", proxy), ("ALL_PROXY", proxy)];
    let counted = source.site.run_with(&["count", &source.connection_string(), "--json"], &variables);
    assert_eq!(printed(&counted)["entities"], 310);
}
