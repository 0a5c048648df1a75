//! ETags and conditions (protocol §9).

use crate::support::batch::{post, query_batch};
use crate::support::*;
use serde_json::json;

cases! {
    an_etag_is_the_timestamp, an_etag_is_the_same_wherever_it_is_shown, etags_grow_with_every_write,
    a_timestamp_is_about_now, the_right_etag_and_a_star_admit_a_write, an_old_etag_is_refused,
    a_well_formed_foreign_etag_is_refused, a_tag_that_is_no_version_is_a_condition_not_met,
    another_spelling_of_the_time_is_another_etag, a_malformed_etag_is_quoted_in_the_refusal,
    an_empty_condition_is_refused, two_conditions_are_refused, if_none_match_is_refused_on_put_and_delete,
    conditions_on_tables_are_refused, a_version_that_the_reader_has_is_not_sent_again,
    another_version_is_sent, what_is_not_there_is_missing_whatever_the_reader_has,
    a_read_in_a_batch_may_have_a_condition_too, queries_have_no_condition,
    a_malformed_etag_wins_over_a_missing_entity, fast_writes_have_etags_of_their_own,
}

const WRITES: [&str; 4] = ["PUT", "MERGE", "PATCH", "DELETE"];

/// A conditional write of `p`, `r`.
fn conditional(t: &Table, verb: &str, header: &str, value: &str) -> Answer {
    let request = t.on(verb, "p", "r").header(header, value);
    if verb == "DELETE" { request.send() } else { request.json(&json!({ "A": 2 })).send() }
}

fn an_etag_is_the_timestamp(client: &Client) {
    let t = client.table();
    let etag = t.seed_one(json!({}));
    let entity = t.entity("p", "r");
    assert_eq!(entity["odata.etag"], json!(etag));
    assert_eq!(entity["Timestamp"], json!(timestamp_of(&etag)));
}

fn an_etag_is_the_same_wherever_it_is_shown(client: &Client) {
    let t = client.table();
    let etag = t.seed_one(json!({}));
    assert_eq!(t.get("p", "r").need("ETag"), etag);
    assert_eq!(t.matches("RowKey eq 'r'")[0]["odata.etag"], json!(etag));
    let full = t.on("GET", "p", "r").level("fullmetadata").send().expect_json();
    assert_eq!(full["odata.etag"], json!(etag));
}

fn etags_grow_with_every_write(client: &Client) {
    let t = client.table();
    let mut stamps = vec![timestamp_of(&t.seed_one(json!({})))];
    for i in 0..50 {
        let verb = ["PUT", "MERGE", "PATCH"][i % 3];
        let answer = t.on(verb, "p", "r").json(&json!({ "A": 1 })).send().expect(204);
        stamps.push(timestamp_of(answer.need("ETag")));
    }
    let parsed = |s: &String| chrono::DateTime::parse_from_rfc3339(s).expect("a time");
    assert!(stamps.windows(2).all(|w| parsed(&w[0]) < parsed(&w[1])), "{stamps:?}");
}

fn a_timestamp_is_about_now(client: &Client) {
    let t = client.table();
    let stamp = timestamp_of(&t.seed_one(json!({})));
    let age = chrono::Utc::now()
        .signed_duration_since(chrono::DateTime::parse_from_rfc3339(&stamp).expect("a time"));
    assert!(age.num_minutes().abs() < 5, "{stamp}");
}

fn the_right_etag_and_a_star_admit_a_write(client: &Client) {
    for verb in WRITES {
        let t = client.table();
        let etag = t.seed_one(json!({ "A": 1 }));
        conditional(&t, verb, "If-Match", &etag).expect(204);
        t.replace("p", "r", &json!({ "A": 1 }), None).expect(204);
        conditional(&t, verb, "If-Match", "*").expect(204);
    }
}

fn an_old_etag_is_refused(client: &Client) {
    for verb in WRITES {
        let t = client.table();
        let old = t.seed_one(json!({ "A": 0 }));
        t.merge("p", "r", &json!({ "A": 1 }), Some(&old)).expect(204);
        let answer = conditional(&t, verb, "If-Match", &old).refused(CONDITION_FAILED);
        assert_eq!(answer.need("Cache-Control"), "no-cache");
        assert_eq!(t.properties(), json!({ "A": 1 }), "{verb}");
    }
}

fn a_well_formed_foreign_etag_is_refused(client: &Client) {
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    for tag in [
        "W/\"datetime'2012-06-15T22%3A51%3A44.9662825Z'\"",
        "w/\"datetime'2012-06-15T22%3A51%3A44.9662825Z'\"",
    ] {
        for verb in WRITES {
            conditional(&t, verb, "If-Match", tag).refused(CONDITION_FAILED);
        }
    }
    assert_eq!(t.properties(), json!({ "A": 1 }));
}

fn a_tag_that_is_no_version_is_a_condition_not_met(client: &Client) {
    let t = client.table();
    let etag = t.seed_one(json!({ "A": 1 }));
    let doubled = etag.replace('\'', "''");
    let others =
        ["W/\"anything\"", "W/\"\"", "W/\"datetime'garbage'\"", "W/\"datetime'99999-99-99T99%3A99%3A99Z'\""];
    for tag in others.into_iter().chain([doubled.as_str()]) {
        for verb in WRITES {
            let answer = conditional(&t, verb, "If-Match", tag).refused(CONDITION_NOT_MET);
            assert_eq!(answer.header("Cache-Control"), None, "{answer}");
        }
        let absent = t.on("PUT", "p", "absent").json(&json!({})).if_match(Some(tag)).send();
        absent.refused(NOT_FOUND);
    }
    assert_eq!(t.properties(), json!({ "A": 1 }));
    let quiet =
        t.on("PUT", "p", "r").json(&json!({})).if_match(Some(&doubled)).header("Prefer", "return-no-content");
    let answer = quiet.send().refused(CONDITION_NOT_MET);
    assert_eq!(answer.header("Preference-Applied"), None, "{answer}");
    Batch::new().delete(&t, "p", "r", &doubled).send(client).refused_alone(CONDITION_NOT_MET);
    assert_eq!(t.count(), 1);
}

fn another_spelling_of_the_time_is_another_etag(client: &Client) {
    let t = client.table();
    let etag = t.seed_one(json!({ "A": 1 }));
    let time = timestamp_of(&etag);
    let digits = time.strip_suffix('Z').expect("UTC");
    let padded =
        format!("{:0<27}", if digits.contains('.') { digits.to_owned() } else { digits.to_owned() + "." });
    for other in
        [format!("{padded}1Z"), digits.to_owned(), format!("{digits}+00:00"), format!("{digits}-00:00")]
    {
        for verb in WRITES {
            let tag = format!("W/\"datetime'{}'\"", other.replace(':', "%3A"));
            conditional(&t, verb, "If-Match", &tag).refused(CONDITION_NOT_MET);
        }
    }
    assert_eq!(t.properties(), json!({ "A": 1 }));
    conditional(&t, "PUT", "If-Match", &format!("W/\"datetime'{padded}Z'\"")).expect(204);
}

fn a_malformed_etag_is_quoted_in_the_refusal(client: &Client) {
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    for tag in ["\"strong\"", "text", "\"", "W/\"a\",W/\"b\"", "W/text", "W/\""] {
        let message = format!(
            "The etag value '{tag}' specified in one of the request headers is not valid. Please make sure only one etag value is specified and is valid."
        );
        for verb in WRITES {
            conditional(&t, verb, "If-Match", tag).expect_error(400, "InvalidInput", &message);
        }
    }
    assert_eq!(t.properties(), json!({ "A": 1 }));
}

fn an_empty_condition_is_refused(client: &Client) {
    // UNVERIFIED 4
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    for verb in WRITES {
        conditional(&t, verb, "If-Match", "").expect_error_code(400, "InvalidInput");
    }
    assert_eq!(t.properties(), json!({ "A": 1 }));
}

fn two_conditions_are_refused(client: &Client) {
    let t = client.table();
    let etag = t.seed_one(json!({ "A": 1 }));
    for verb in WRITES {
        let request = t.on(verb, "p", "r").header("If-Match", &etag).header("If-None-Match", "*");
        let request = if verb == "DELETE" { request } else { request.json(&json!({ "A": 2 })) };
        request.send().refused(BOTH_CONDITIONS);
    }
    assert_eq!(t.properties(), json!({ "A": 1 }));
}

fn if_none_match_is_refused_on_put_and_delete(client: &Client) {
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    for verb in ["PUT", "DELETE"] {
        let message = format!("If-None-Match HTTP header cannot be specified for {verb} operations.");
        conditional(&t, verb, "If-None-Match", "*").expect_error(400, "InvalidInput", &message);
    }
    assert_eq!(t.properties(), json!({ "A": 1 }));
}

fn conditions_on_tables_are_refused(client: &Client) {
    let t = client.table();
    let message = "If-Match or If-None-Match headers cannot be specified if the target type does not have etag properties defined.";
    for header in ["If-Match", "If-None-Match"] {
        let request = client.request("DELETE", &format!("/Tables('{}')", t.name)).header(header, "*");
        request.send().expect_error(400, "InvalidInput", message);
    }
    assert_eq!(t.count(), 0);
}

/// A read of `p`, `r` by a client that has these versions.
fn unless(t: &Table, has: &str) -> Answer {
    t.on("GET", "p", "r").header("If-None-Match", has).send()
}

fn a_version_that_the_reader_has_is_not_sent_again(client: &Client) {
    let t = client.table();
    let etag = t.seed_one(json!({ "A": 1 }));
    let strong = etag.trim_start_matches("W/");
    let unescaped = etag.replace("%3A", ":");
    let list = format!("W/\"datetime'2012-06-15T22%3A51%3A44.9662825Z'\", {etag}");
    for has in [etag.as_str(), strong, &unescaped, &list, "*"] {
        let answer = unless(&t, has).expect(304);
        assert_eq!((answer.need("ETag"), answer.text()), (etag.as_str(), ""), "{has}");
        assert_eq!(answer.need("Cache-Control"), "no-cache", "{has}");
        assert_eq!((answer.header("Content-Type"), answer.header("Content-Length")), (None, None), "{has}");
    }
    // The connection goes on: its next answer is whole.
    assert_eq!(t.properties(), json!({ "A": 1 }));
    let twice = t.on("GET", "p", "r").also("If-None-Match", "W/\"x\"").also("If-None-Match", &etag);
    twice.send().expect(304);
}

fn another_version_is_sent(client: &Client) {
    let t = client.table();
    let old = t.seed_one(json!({ "A": 1 }));
    let new = t.merge("p", "r", &json!({ "A": 2 }), Some(&old)).need("ETag").to_owned();
    for has in [old.as_str(), "W/\"anything\"", "\"", "nonsense", "", &format!("*, {old}")] {
        let answer = unless(&t, has).expect(200);
        assert_eq!(answer.need("ETag"), new, "{has}");
        assert_eq!(custom(answer.json()), json!({ "A": 2 }), "{has}");
    }
    unless(&t, &new).expect(304);
    // What of it is selected, and in which format, makes no difference.
    let bare = t.on("GET", "p", "r").level("nometadata").header("If-None-Match", &new);
    bare.send().expect(304);
}

fn what_is_not_there_is_missing_whatever_the_reader_has(client: &Client) {
    let t = client.table();
    unless(&t, "*").refused(NOT_FOUND);
    let etag = t.seed_one(json!({ "A": 1 }));
    let path = format!("{}?$filter=A%20eq%202", t.path("p", "r"));
    client.request("GET", &path).header("If-None-Match", &etag).send().refused(NOT_FOUND);
    let outside = Sas::table(&t.name, "r").range((Some("q"), None), (Some("q"), None)).of(client);
    unless(&Table::new(&outside, &t.name), &etag).refused(NOT_FOUND);
    let blind = Sas::table(&t.name, "a").of(client);
    unless(&Table::new(&blind, &t.name), &etag).refused(PERMISSION);
}

fn a_read_in_a_batch_may_have_a_condition_too(client: &Client) {
    let t = client.table();
    let etag = t.seed_one(json!({ "A": 1 }));
    let batch = query_batch(&client.url(&t.path("p", "r")));
    let accept = "Accept: ";
    assert!(batch.contains(accept), "{batch}");
    let batch = batch.replacen(accept, &format!("If-None-Match: {etag}\r\n{accept}"), 1);
    let answer = BatchAnswer::of(post(client, batch).send());
    let part = &answer.parts[0];
    assert_eq!(part.status, 304, "{}", answer.outer);
    assert!(part.raw.starts_with("HTTP/1.1 304 Not Modified\r\n"), "{}", part.raw);
    assert_eq!(part.need("ETag"), etag);
}

fn queries_have_no_condition(client: &Client) {
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    for path in [t.set(), format!("/{}(PartitionKey='p')", t.name), "/Tables".into()] {
        client.request("GET", &path).header("If-None-Match", "*").send().expect(200);
    }
}

fn a_malformed_etag_wins_over_a_missing_entity(client: &Client) {
    let t = client.table();
    for verb in WRITES {
        conditional(&t, verb, "If-Match", "text").expect_error_code(400, "InvalidInput");
    }
}

fn fast_writes_have_etags_of_their_own(client: &Client) {
    let t = client.table();
    let mut etags: Vec<String> = std::thread::scope(|scope| {
        let upsert = |i: i32| {
            let write = |n| t.replace("p", "r", &json!({ "A": i * 100 + n }), None);
            (0..10).map(|n| write(n).expect(204).need("ETag").to_owned()).collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..4).map(|i| scope.spawn(move || upsert(i))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no write panics")).collect()
    });
    etags.sort();
    etags.dedup();
    assert_eq!(etags.len(), 40);
}
