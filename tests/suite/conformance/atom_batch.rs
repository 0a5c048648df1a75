//! Batches whose parts are Atom, for versions before 2015-12-11 (protocol §4.6,
//! §4.7, §8.3, §8.4).

use serde_json::json;

use crate::support::atom::*;
use crate::support::batch::{Part, post};
use crate::support::*;

cases! {
    change_sets_hold_every_kind_of_write, inserts_are_answered_with_the_entry,
    updates_and_deletes_are_answered_to_the_byte, failures_are_atom,
    what_is_wrong_with_a_part_is_said_in_atom, parts_may_differ_in_form,
    parts_take_the_accept_header_of_the_whole, one_get_is_answered_with_the_entry,
    one_query_is_answered_with_the_feed, parts_are_no_atom_since_2015_12_11,
}

const KIND: &str = "Content-Type: application/atom+xml;type=entry";
const ACCEPT: &str = "Accept: application/atom+xml,application/xml";

/// Versions with entity group transactions of Atom.
fn versions() -> impl Iterator<Item = Option<&'static str>> {
    [None, Some("2009-04-14"), Some("2009-09-19"), Some("2011-08-18"), Some("2012-02-12")]
        .into_iter()
        .chain(MODERN)
}

/// Whether documents have the layout of 2009.
fn classic(version: Option<&str>) -> bool {
    version.is_none_or(|version| version < "2013-08-15")
}

fn kind(version: Option<&str>, kind: &str) -> String {
    content_type(Some(if classic(version) { "2009-09-19" } else { "2014-02-14" }), kind)
}

/// What documents of a version begin with.
fn opening(version: Option<&str>) -> &'static str {
    if classic(version) { PROLOG } else { "<?xml version=\"1.0\" encoding=\"utf-8\"?>" }
}

fn data_service_version(version: Option<&str>) -> &'static str {
    if classic(version) { "1.0;" } else { "3.0;" }
}

fn sent(client: &Client, version: Option<&str>, body: String) -> BatchAnswer {
    let request = post(client, body).without("DataServiceVersion").without("Accept").without("x-ms-version");
    BatchAnswer::of(match version {
        Some(version) => request.version(version).send(),
        None => request.send(),
    })
}

fn send(client: &Client, version: Option<&str>, batch: &Batch) -> BatchAnswer {
    sent(client, version, batch.body())
}

fn insert(batch: Batch, t: &Table, row: &str) -> Batch {
    let body = entry(&(keys("p", row) + "<d:A>x&amp;y</d:A>"));
    batch.operation("POST", &t.client.url(&t.set()), &[KIND, ACCEPT], &body)
}

fn write(batch: Batch, t: &Table, verb: &str, row: &str, condition: Option<&str>) -> Batch {
    let condition = condition.map(|etag| format!("If-Match: {etag}"));
    let mut headers = vec![KIND, ACCEPT];
    headers.extend(condition.as_deref());
    let url = t.client.url(&t.path("p", row));
    batch.operation(verb, &url, &headers, &entry("<d:B m:type=\"Edm.Int32\">2</d:B>"))
}

fn delete(batch: Batch, t: &Table, row: &str) -> Batch {
    batch.operation("DELETE", &t.client.url(&t.path("p", row)), &[ACCEPT, "If-Match: *"], "")
}

fn seeded(client: &Client) -> Table<'_> {
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    t
}

fn change_sets_hold_every_kind_of_write(client: &Client) {
    for version in versions() {
        let t = seeded(client);
        t.seed_rows("p", ["gone", "replaced"]);
        let batch = insert(insert(Batch::new(), &t, "1"), &t, "2");
        let batch = write(batch, &t, "MERGE", "r", Some("*"));
        let batch = delete(write(batch, &t, "PUT", "replaced", Some("*")), &t, "gone");
        let answer = send(client, version, &batch);
        assert!(answer.in_change_set);
        let statuses: Vec<u16> = answer.parts.iter().map(|part| part.status).collect();
        assert_eq!(statuses, [201, 201, 204, 204, 204], "{}", answer.outer);
        assert_eq!(t.properties(), json!({ "A": 1, "B": 2 }));
        assert_eq!(custom(t.entity("p", "2")), json!({ "A": "x&y" }));
        assert_eq!(custom(t.entity("p", "replaced")), json!({ "B": 2 }));
        t.get("p", "gone").refused(NOT_FOUND);
        // Upserts are younger than transactions.
        let upserts = write(write(Batch::new(), &t, "PUT", "new", None), &t, "MERGE", "newer", None);
        let answer = send(client, version, &upserts);
        if version.is_some_and(|version| version < "2011-08-18") {
            failed(&answer, version, 400, ("InvalidInput", "0:One of the request inputs is not valid."));
            t.get("p", "new").refused(NOT_FOUND);
        } else {
            assert_eq!(answer.parts.len(), 2, "{}", answer.outer);
            assert_eq!(custom(t.entity("p", "newer")), json!({ "B": 2 }));
        }
    }
}

fn inserts_are_answered_with_the_entry(client: &Client) {
    for version in versions() {
        let t = client.table();
        let answer = send(client, version, &insert(Batch::new(), &t, "1"));
        let part = &answer.parts[0];
        assert_eq!((part.status, part.reason.as_str()), (201, "Created"));
        assert_eq!(
            part.header_names(),
            "DataServiceVersion,Content-Type,X-Content-Type-Options,Cache-Control,Location,ETag"
        );
        assert_eq!(part.need("DataServiceVersion"), data_service_version(version), "{version:?}");
        assert_eq!(part.need("Content-Type"), kind(version, "entry"), "{version:?}");
        assert_eq!(part.need("Location"), client.url(&printed_entity_path(&t.name, "p", "1")));
        assert_eq!(part.need("ETag"), t.get("p", "1").need("ETag"));
        // The same document as outside of a batch, but for the time of day.
        let alone = request(client, version, "GET", &t.path("p", "1")).send().expect(200);
        let without_update = |text: &str| {
            let (head, rest) = text.split_once("<updated>").expect("a time");
            format!("{head}{}", rest.split_once("</updated>").expect("its end").1)
        };
        assert_eq!(without_update(&part.body), without_update(alone.text()), "{version:?}");
        assert!(
            part.body.starts_with(opening(version)) && part.body.contains("<d:A>x&amp;y</d:A>"),
            "{}",
            part.raw
        );
    }
}

fn updates_and_deletes_are_answered_to_the_byte(client: &Client) {
    for version in versions() {
        let t = seeded(client);
        t.seed_rows("p", ["s"]);
        let batch = delete(write(Batch::new(), &t, "MERGE", "r", Some("*")), &t, "s");
        let answer = send(client, version, &batch);
        let head = "HTTP/1.1 204 No Content\r\nX-Content-Type-Options: nosniff\r\nCache-Control: no-cache\r\n\
                    DataServiceVersion: 1.0;\r\n";
        let etag = t.get("p", "r").need("ETag").to_owned();
        assert_eq!(answer.parts[0].raw, format!("{head}ETag: {etag}\r\n\r\n\r\n"), "{version:?}");
        assert_eq!(answer.parts[1].raw, format!("{head}\r\n\r\n"), "{version:?}");
    }
}

/// Code and first line of a failure in the form of the version, whose bytes
/// are checked.
fn failure<'p>(answer: &BatchAnswer, part: &'p Part, version: Option<&str>) -> (&'p str, &'p str) {
    let kind = if classic(version) { "application/xml" } else { "application/xml;charset=utf-8" };
    assert_eq!(part.need("Content-Type"), kind, "{}", part.raw);
    assert_eq!(part.need("DataServiceVersion"), data_service_version(version), "{}", part.raw);
    let namespace = "http://schemas.microsoft.com/ado/2007/08/dataservices/metadata";
    let open = format!("{}<error xmlns=\"{namespace}\"><code>", opening(version));
    let (middle, close) = ("</code><message xml:lang=\"en-US\">", "</message></error>");
    let parts = part.body.strip_prefix(&open).and_then(|rest| rest.strip_suffix(close)?.split_once(middle));
    let (code, message) = parts.unwrap_or_else(|| panic!("not the form of {version:?}: {}", part.raw));
    match message.split_once('\n') {
        None => {
            assert!(classic(version), "{}", part.raw);
            (code, message)
        }
        Some((first, rest)) => {
            assert!(!classic(version), "{}", part.raw);
            let id = format!("RequestId:{}\nTime:", answer.outer.need("x-ms-request-id"));
            assert!(rest.starts_with(&id), "{}", part.raw);
            (code, first)
        }
    }
}

/// Demands that one part says that the change set failed, and why.
#[track_caller]
fn failed(answer: &BatchAnswer, version: Option<&str>, status: u16, expected: (&str, &str)) {
    assert_eq!(answer.parts.len(), 1, "{}", answer.outer);
    let part = &answer.parts[0];
    assert_eq!(part.status, status, "{version:?} {}", part.raw);
    assert_eq!(failure(answer, part, version), expected, "{version:?}");
}

fn failures_are_atom(client: &Client) {
    for version in versions() {
        let t = seeded(client);
        // It got a code of its own later, as recorded.
        let twice = match version {
            Some(_) => ("InvalidInput", "1:One of the request inputs is not valid."),
            None => (
                "InvalidDuplicateRow",
                "1:The batch request contains multiple changes with same row key. An entity can appear only once in a batch request.",
            ),
        };
        let good = || insert(Batch::new(), &t, "1");
        let wrong = "W/\"datetime'2000-01-01T00%3A00%3A00Z'\"";
        for (batch, status, code, message) in [
            (insert(good(), &t, "r"), 409, "EntityAlreadyExists", "1:The specified entity already exists."),
            (delete(good(), &t, "none"), 404, "ResourceNotFound", "1:The specified resource does not exist."),
            (
                write(good(), &t, "MERGE", "r", Some(wrong)),
                412,
                "UpdateConditionNotSatisfied",
                "1:The update condition specified in the request was not satisfied.",
            ),
            (insert(good(), &t, "1"), 400, twice.0, twice.1),
        ] {
            failed(&send(client, version, &batch), version, status, (code, message));
        }
        // Alone, a failure in storage has no index.
        let answer = send(client, version, &insert(Batch::new(), &t, "r"));
        failed(&answer, version, 409, ("EntityAlreadyExists", "The specified entity already exists."));
        let answer = query(client, version, &t.path("p", "none"));
        failed(&answer, version, 404, ("ResourceNotFound", "0:The specified resource does not exist."));
        let gone = Table::new(client, fresh_name());
        let answer = send(client, version, &insert(Batch::new(), &gone, "1"));
        failed(&answer, version, 404, ("TableNotFound", "0:The table specified does not exist."));
        assert_eq!(t.count(), 1);
    }
}

fn what_is_wrong_with_a_part_is_said_in_atom(client: &Client) {
    for version in versions() {
        let t = client.table();
        let url = client.url(&t.set());
        for (body, code, message) in [
            ("<entry>", "InvalidInput", "1:An error occurred while processing this request."),
            (
                &entry("<d:PartitionKey>p</d:PartitionKey>"),
                "PropertiesNeedValue",
                "1:The values are not specified for all properties in the entity.",
            ),
            (
                &entry(&(keys("p", "x") + "<d:A m:type=\"Edm.Int32\">many</d:A>")),
                "InvalidInput",
                "1:An error occurred while processing this request.",
            ),
        ] {
            let batch = insert(Batch::new(), &t, "1").operation("POST", &url, &[KIND, ACCEPT], body);
            failed(&send(client, version, &batch), version, 400, (code, message));
        }
        let plain = ["Content-Type: text/plain", ACCEPT];
        let batch = insert(Batch::new(), &t, "1").operation("POST", &url, &plain, &entry(&keys("p", "2")));
        let message = "1:None of the provided media types are supported";
        failed(&send(client, version, &batch), version, 415, ("MediaTypeNotSupported", message));
        assert_eq!(t.count(), 0);
    }
}

fn parts_may_differ_in_form(client: &Client) {
    for version in MODERN {
        let t = client.table();
        let batch = insert(Batch::new(), &t, "1").insert_echo(&t, &with_keys("p", "2", json!({ "A": 2 })));
        let batch = batch.operation(
            "POST",
            &client.url(&t.set()),
            &[KIND, "Accept: application/json;odata=nometadata", "Prefer: return-content"],
            &entry(&keys("p", "3")),
        );
        let answer = send(client, version, &batch);
        let kinds: Vec<&str> = answer.parts.iter().map(|part| part.need("Content-Type")).collect();
        let json = |level: &str| format!("application/json;odata={level};streaming=true;charset=utf-8");
        assert_eq!(kinds, [kind(version, "entry"), json("minimalmetadata"), json("nometadata")]);
        assert!(answer.parts.iter().all(|part| part.need("DataServiceVersion") == "3.0;"));
        assert_eq!(answer.parts[2].need("Preference-Applied"), "return-content");
        // Each failure speaks the form that its part asked for.
        let again = insert(Batch::new(), &t, "9").insert_echo(&t, &with_keys("p", "2", json!({})));
        send(client, version, &again).refused(1, ENTITY_EXISTS);
        let again = Batch::new().insert_echo(&t, &with_keys("p", "9", json!({})));
        let answer = send(client, version, &insert(again, &t, "1"));
        failed(&answer, version, 409, ("EntityAlreadyExists", "1:The specified entity already exists."));
        // Without content there is no form.
        let quiet = [KIND, ACCEPT, "Prefer: return-no-content"];
        let batch = Batch::new().operation("POST", &client.url(&t.set()), &quiet, &entry(&keys("p", "4")));
        let answer = send(client, version, &batch);
        assert_eq!(answer.parts[0].status, 204, "{}", answer.outer);
        assert_eq!(answer.parts[0].need("DataServiceVersion"), "3.0;");
    }
}

fn parts_take_the_accept_header_of_the_whole(client: &Client) {
    let t = client.table();
    let inner = |row: &str| {
        Batch::new().operation("POST", &client.url(&t.set()), &[KIND], &entry(&keys("p", row))).body()
    };
    let outer = |row: &str, accept: &str| {
        BatchAnswer::of(post(client, inner(row)).version("2014-02-14").header("Accept", accept).send())
    };
    let answer = outer("1", "application/atom+xml");
    assert_eq!(answer.parts[0].need("Content-Type"), kind(Some("2014-02-14"), "entry"));
    let answer = outer("2", "application/json;odata=fullmetadata");
    let json = "application/json;odata=fullmetadata;streaming=true;charset=utf-8";
    assert_eq!(answer.parts[0].need("Content-Type"), json);
}

/// A batch of one GET.
fn query(client: &Client, version: Option<&str>, path: &str) -> BatchAnswer {
    let body = format!(
        "--batch_b\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n\
         GET {} HTTP/1.1\r\n{ACCEPT}\r\n\r\n\r\n--batch_b--\r\n",
        client.url(path)
    );
    sent(client, version, body)
}

fn one_get_is_answered_with_the_entry(client: &Client) {
    for version in versions() {
        let t = seeded(client);
        let answer = query(client, version, &t.path("p", "r"));
        assert!(!answer.in_change_set);
        let part = &answer.parts[0];
        assert_eq!(
            part.header_names(),
            "DataServiceVersion,Content-Type,X-Content-Type-Options,Cache-Control,ETag"
        );
        assert_eq!(part.need("DataServiceVersion"), data_service_version(version));
        assert_eq!(part.need("Content-Type"), kind(version, "entry"));
        assert!(part.body.contains("<d:A m:type=\"Edm.Int32\">1</d:A>"), "{}", part.raw);
    }
}

fn one_query_is_answered_with_the_feed(client: &Client) {
    for version in versions() {
        let t = client.table();
        t.seed_rows("p", ["1", "2", "3"]);
        let answer = query(client, version, &format!("/{}()?$top=2", t.name));
        let part = &answer.parts[0];
        assert_eq!(part.need("Content-Type"), kind(version, "feed"));
        assert_eq!(part.body.matches("<entry").count(), 2, "{}", part.raw);
        part.need("x-ms-continuation-NextPartitionKey");
    }
}

fn parts_are_no_atom_since_2015_12_11(client: &Client) {
    let t = client.table();
    let url = client.url(&t.set());
    let json = with_keys("p", "2", json!({})).to_string();
    let is_json = "Content-Type: application/json";
    let wants_json = "Accept: application/json;odata=minimalmetadata";
    for version in ["2015-12-11", "2019-02-02", "2026-06-06"] {
        let good = || Batch::new().insert(&t, &with_keys("p", "1", json!({})));
        for (headers, body) in [
            ([KIND, wants_json], &entry(&keys("p", "2"))),
            ([is_json, ACCEPT], &json),
            ([KIND, ACCEPT], &entry(&keys("p", "2"))),
        ] {
            let answer = send(client, Some(version), &good().operation("POST", &url, &headers, body));
            answer.refused(1, ATOM_FORMAT);
        }
        let answer = query(client, Some(version), &t.path("p", "1"));
        answer.refused(0, ATOM_FORMAT);
        // What has no document is not asked for its form.
        let quiet = [is_json, ACCEPT, "Prefer: return-no-content"];
        let body = with_keys("p", version, json!({})).to_string();
        let answer = send(client, Some(version), &Batch::new().operation("POST", &url, &quiet, &body));
        assert_eq!(answer.parts[0].status, 204, "{}", answer.outer);
    }
    assert_eq!(t.count(), 3);
}
