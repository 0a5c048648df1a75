//! Batches in the very bytes of the clients that send them: where a body ends, and which parts cannot
//! be read (protocol §8.2, §8.4).

use serde_json::json;

use crate::support::batch::{Part, post};
use crate::support::*;

cases! {
    inserts_of_the_sdk_for_cpp_are_done, a_row_twice_in_a_batch_of_the_sdk_for_cpp_is_refused_at_the_second,
    other_writes_of_the_sdk_for_cpp_are_done,
    deletions_of_the_sdk_for_cpp_whose_headers_do_not_end_are_refused,
    headers_that_run_into_any_boundary_are_refused,
    a_length_of_the_sdk_for_cpp_that_is_no_number_is_refused_to_the_byte, headers_that_are_none_are_refused,
    what_cannot_be_read_is_refused_in_the_form_of_the_version,
    a_query_whose_headers_cannot_be_read_is_refused, a_merge_of_the_retired_sdk_for_java_is_done,
    a_method_header_that_repeats_the_verb_changes_nothing, a_boundary_ends_a_body_in_every_frame,
    what_follows_a_boundary_on_its_line_makes_it_content, deletions_of_the_retired_sdk_for_rust_ask_for_atom,
}

const CHANGE_SET: &str = "changeset_63ce3ea1-3e7b-41a1-bcd6-588e3854786f";
const BATCH: &str = "batch_12345678-1234-1234-1234-123456789000";

/// A batch as the official SDK for C++ writes it: nothing but LF at the end of lines, each part behind
/// the last byte of the one before it, and no dashes behind the last boundary.
fn cpp(requests: &[String]) -> String {
    let parts = requests.iter().map(|request| {
        format!(
            "--{CHANGE_SET}\nContent-Type: application/http\nContent-Transfer-Encoding: binary\n\n{request}"
        )
    });
    format!(
        "--{BATCH}\nContent-Type: multipart/mixed; boundary={CHANGE_SET}\n\n{}\n\n--{CHANGE_SET}--\n--{BATCH}\n",
        parts.collect::<String>()
    )
}

fn cpp_insert(t: &Table, row: &str) -> String {
    format!(
        "POST {} HTTP/1.1\nContent-Type: application/json\nAccept: application/json;odata=minimalmetadata\n\
         Prefer: return-no-content\nDataServiceVersion: 3.0;\n\n\
         {{\"Name\":\"Azure\",\"PartitionKey\":\"P1\",\"Product\":\"Tables\",\"RowKey\":\"{row}\"}}",
        t.client.url(&format!("/{}", t.name))
    )
}

/// Its requests with a body on an entity; `headers` as complete lines.
fn cpp_write(t: &Table, verb: &str, row: &str, headers: &str) -> String {
    format!(
        "{verb} {} HTTP/1.1\nContent-Type: application/json\nAccept: application/json;odata=minimalmetadata\n\
         {headers}DataServiceVersion: 3.0;\nIf-Match: *\n\n\
         {{\"Name\":\"Azure2\",\"PartitionKey\":\"P1\",\"Product\":\"Tables3\",\"RowKey\":\"{row}\"}}",
        t.client.url(&t.path("P1", row))
    )
}

/// Without the empty line that ends headers: only the last one of a batch has it.
fn cpp_delete(t: &Table, row: &str) -> String {
    format!(
        "DELETE {} HTTP/1.1\nAccept: application/json;odata=minimalmetadata\nDataServiceVersion: 3.0;\n\
         If-Match: *\n",
        t.client.url(&t.path("P1", row))
    )
}

fn send_cpp(client: &Client, requests: &[String]) -> BatchAnswer {
    let request = post(client, cpp(requests)).version("2019-02-02").level("fullmetadata");
    let kind = format!("multipart/mixed; boundary={BATCH}");
    BatchAnswer::of(request.header("Accept-Charset", "UTF-8").header("Content-Type", kind).send())
}

fn statuses(answer: &BatchAnswer) -> Vec<u16> {
    answer.parts.iter().map(|part| part.status).collect()
}

fn inserts_of_the_sdk_for_cpp_are_done(client: &Client) {
    let t = client.table();
    let answer = send_cpp(client, &[cpp_insert(&t, "R1"), cpp_insert(&t, "R2")]);
    assert!(answer.in_change_set);
    assert_eq!(statuses(&answer), [204, 204], "{}", answer.outer);
    for (part, row) in answer.parts.iter().zip(["R1", "R2"]) {
        let url = client.url(&t.path("P1", row));
        let etag = t.get("P1", row).need("ETag").to_owned();
        let expected = format!(
            "HTTP/1.1 204 No Content\r\nX-Content-Type-Options: nosniff\r\nCache-Control: no-cache\r\n\
             Preference-Applied: return-no-content\r\nDataServiceVersion: 3.0;\r\nLocation: {url}\r\n\
             DataServiceId: {url}\r\nETag: {etag}\r\n\r\n\r\n"
        );
        assert_eq!(part.raw, expected);
        let stored = t.entity("P1", row);
        assert_eq!((&stored["Name"], &stored["Product"]), (&json!("Azure"), &json!("Tables")));
    }
    let many: Vec<String> = (0..100).map(|row| cpp_insert(&t, &format!("many{row}"))).collect();
    assert_eq!(statuses(&send_cpp(client, &many)), [204; 100]);
    assert_eq!(t.count(), 102);
}

fn a_row_twice_in_a_batch_of_the_sdk_for_cpp_is_refused_at_the_second(client: &Client) {
    let t = client.table();
    let answer = send_cpp(client, &[cpp_insert(&t, "R1"), cpp_insert(&t, "R1")]);
    let part = answer.refused(1, DUPLICATE_ROW);
    assert_eq!(
        part.header_names(),
        "X-Content-Type-Options,Cache-Control,Preference-Applied,DataServiceVersion,Content-Type"
    );
    assert_eq!(t.count(), 0);
}

fn other_writes_of_the_sdk_for_cpp_are_done(client: &Client) {
    let t = client.table();
    t.seed_rows("P1", ["R1", "R2", "R3"]);
    let requests = [
        cpp_write(&t, "MERGE", "R1", ""),
        cpp_write(&t, "PUT", "R2", "Prefer: return-no-content\n"),
        cpp_insert(&t, "R4"),
        cpp_delete(&t, "R3"),
    ];
    assert_eq!(statuses(&send_cpp(client, &requests)), [204; 4]);
    assert_eq!(t.matching_rows("Name eq 'Azure2'"), "R1,R2");
    assert_eq!(t.count(), 3);
}

/// Demands that a batch failed because a part could not be read, without an index, in XML.
#[track_caller]
fn unreadable(answer: &BatchAnswer) -> &Part {
    assert_eq!(answer.parts.len(), 1, "{}", answer.outer);
    let part = &answer.parts[0];
    assert_eq!(part.header_names(), "DataServiceVersion,Content-Type", "{}", part.raw);
    assert_eq!((part.need("DataServiceVersion"), part.reason.as_str()), ("1.0;", "Bad Request"));
    part.as_answer(&answer.outer).refused_in_table_xml(BAD_BODY);
    part
}

fn deletions_of_the_sdk_for_cpp_whose_headers_do_not_end_are_refused(client: &Client) {
    let t = client.table();
    t.seed_rows("P1", ["R1", "R2"]);
    unreadable(&send_cpp(client, &[cpp_delete(&t, "R1"), cpp_delete(&t, "R2")]));
    unreadable(&send_cpp(client, &[cpp_insert(&t, "R3"), cpp_delete(&t, "R1"), cpp_insert(&t, "R4")]));
    assert_eq!(t.count(), 2);
    assert_eq!(statuses(&send_cpp(client, &[cpp_delete(&t, "R2")])), [204]);
    assert_eq!(t.count(), 1);
}

fn headers_that_run_into_any_boundary_are_refused(client: &Client) {
    let t = client.table();
    t.seed_rows("p", ["r"]);
    let delete = format!("DELETE {} HTTP/1.1", client.url(&t.path("p", "r")));
    let mime = "Content-Type: application/http";
    for end in ["\r\n", "\n"] {
        let with_headers = format!("{mime}{end}{end}{delete}{end}If-Match: *");
        let without = format!("{mime}{end}{end}{delete}");
        for part in [with_headers.as_str(), &without, mime] {
            for glue in [end, ""] {
                for closing in ["--changeset_c--", "--changeset_c", "--batch_b--", "--batch_b"] {
                    let body = format!(
                        "--batch_b{end}Content-Type: multipart/mixed; boundary=changeset_c{end}{end}\
                         --changeset_c{end}{part}{glue}{closing}{end}--batch_b--{end}"
                    );
                    unreadable(&BatchAnswer::of(post(client, body).send()));
                }
            }
        }
    }
    assert_eq!(t.count(), 1);
}

fn a_length_of_the_sdk_for_cpp_that_is_no_number_is_refused_to_the_byte(client: &Client) {
    let t = client.table();
    for length in [69, 71] {
        let request = format!(
            "PATCH {} HTTP/1.1\nContent-Type: application/json\n\
             Content-Length: {length}Accept: application/json;odata=minimalmetadata\n\
             Prefer: return-no-content\nDataServiceVersion: 3.0;\nIf-Match: *\n\n",
            client.url(&t.path("P1", "R1"))
        );
        let answer = send_cpp(client, &[request]);
        let part = unreadable(&answer);
        let (before, time) = part.raw.split_once("\nTime:").expect("a time");
        assert_eq!(
            before,
            format!(
                "HTTP/1.1 400 Bad Request\r\nDataServiceVersion: 1.0;\r\n\
                 Content-Type: application/xml;charset=utf-8\r\n\r\n\
                 <?xml version=\"1.0\" encoding=\"utf-8\"?>\
                 <error xmlns=\"http://schemas.microsoft.com/ado/2007/08/dataservices/metadata\">\
                 <code>InvalidInput</code><message xml:lang=\"en-US\">\
                 An error occurred while processing this request.\nRequestId:{}",
                answer.outer.need("x-ms-request-id")
            )
        );
        assert!(time.ends_with("Z</message></error>\r\n"), "{}", part.raw);
    }
    assert_eq!(t.count(), 0);
}

fn headers_that_are_none_are_refused(client: &Client) {
    let t = client.table();
    let entity = with_keys("p", "r", json!({})).to_string();
    let good = Batch::new().insert(&t, &with_keys("p", "good", json!({})));
    for bad in ["no colon", "Content-Length: ", "Content-Length: -1", "Content-Length: 12 34"] {
        let headers = ["Content-Type: application/json", "Accept: application/json", bad];
        let url = client.url(&t.set());
        unreadable(&Batch::new().operation("POST", &url, &headers, &entity).send(client));
        unreadable(&good.clone().operation("POST", &url, &headers, &entity).send(client));
    }
    let in_mime = good.body().replace("Content-Transfer-Encoding: binary", "no colon");
    unreadable(&BatchAnswer::of(post(client, in_mime).send()));
    assert_eq!(t.count(), 0);
}

fn what_cannot_be_read_is_refused_in_the_form_of_the_version(client: &Client) {
    let t = client.table();
    let url = client.url(&t.path("p", "r"));
    let body = Batch::new().operation("DELETE", &url, &["If-Match: *", "no colon"], "").body();
    let send = |version: Option<&str>| {
        let request = post(client, body.clone()).without("x-ms-version").without("DataServiceVersion");
        BatchAnswer::of(match version {
            Some(version) => request.version(version).send(),
            None => request.send(),
        })
    };
    for version in ["2013-08-15", "2014-02-14", "2015-04-05", "2015-12-11", "2019-07-07", "2026-06-06"] {
        unreadable(&send(Some(version)));
    }
    for version in [None, Some("2009-04-14"), Some("2012-02-12")] {
        let answer = send(version);
        let part = &answer.parts[0];
        assert_eq!(part.header_names(), "DataServiceVersion,Content-Type", "{}", part.raw);
        assert_eq!((part.need("DataServiceVersion"), part.need("Content-Type")), ("1.0;", "application/xml"));
        let end =
            "<message xml:lang=\"en-US\">An error occurred while processing this request.</message></error>";
        assert!(part.body.ends_with(end), "{}", part.raw);
    }
}

fn a_query_whose_headers_cannot_be_read_is_refused(client: &Client) {
    let t = client.table();
    t.seed_rows("p", ["r"]);
    let url = client.url(&t.path("p", "r"));
    for end in ["\r\n", "\n"] {
        for headers in [format!("Accept: application/json{end}no colon{end}{end}"), "Accept: */*".into()] {
            let body = format!(
                "--batch_b{end}Content-Type: application/http{end}{end}GET {url} HTTP/1.1{end}{headers}{end}\
                 --batch_b--{end}"
            );
            let answer = BatchAnswer::of(post(client, body).send());
            assert!(!answer.in_change_set);
            unreadable(&answer);
        }
    }
}

/// As the SDK for Java before the current one writes it: CRLF, and the verb a second time.
fn a_merge_of_the_retired_sdk_for_java_is_done(client: &Client) {
    let t = client.table();
    t.seed_rows("p", ["1", "2"]);
    let part = |row: &str, condition: &str| {
        format!(
            "--changeset_c\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n\
             MERGE {} HTTP/1.1\r\nAccept: application/json;odata=minimalmetadata\r\nContent-ID: {row}\r\n\
             {condition}X-HTTP-Method: MERGE\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\
             MaxDataServiceVersion: 3.0;NetFx\r\n\r\n{{\"A\":1}}\r\n",
            client.url(&t.path("p", row))
        )
    };
    for version in ["2017-07-29", "2019-02-02", "2026-06-06"] {
        let body = format!(
            "--batch_b\r\nContent-Type: multipart/mixed; boundary=changeset_c\r\n\r\n{}{}--changeset_c--\r\n\
             --batch_b--\r\n",
            part("1", "If-Match: *\r\n"),
            part("2", "")
        );
        let answer = BatchAnswer::of(post(client, body).version(version).send());
        assert_eq!(statuses(&answer), [204, 204], "{}", answer.outer);
    }
    assert_eq!(t.matching_rows("A eq 1"), "1,2");
}

fn a_method_header_that_repeats_the_verb_changes_nothing(client: &Client) {
    let t = client.table();
    t.seed_rows("p", ["1", "2"]);
    let url = client.url(&t.path("p", "1"));
    let kind = "Content-Type: application/json";
    let send = |verb: &str, named: &[&str]| {
        let named = named.iter().map(|verb| format!("X-HTTP-Method: {verb}")).collect::<Vec<_>>();
        let headers: Vec<&str> =
            [kind, "If-Match: *"].into_iter().chain(named.iter().map(String::as_str)).collect();
        Batch::new().operation(verb, &url, &headers, "{}").send(client)
    };
    for (verb, named) in
        [("MERGE", "MERGE"), ("PATCH", "MERGE"), ("MERGE", "patch"), ("PUT", "PUT"), ("DELETE", "delete")]
    {
        assert_eq!(statuses(&send(verb, &[named])), [204], "{verb} {named}");
    }
    t.seed_rows("p", ["1"]);
    let insert = with_keys("p", "3", json!({})).to_string();
    let headers = [kind, "X-HTTP-Method: POST", "Prefer: return-no-content"];
    Batch::new().operation("POST", &client.url(&t.set()), &headers, &insert).commit(client);
    // One that differs is a tunnel, which needs POST; several are too many.
    send("MERGE", &["PUT"]).refused(0, TUNNEL_NOT_POST);
    send("DELETE", &["MERGE"]).refused(0, TUNNEL_NOT_POST);
    send("MERGE", &["MERGE", "MERGE"]).expect_failure_code(400, "XMethodIncorrectCount", 0);
    // Outside of a batch, it is refused in any case.
    let alone = t.on("MERGE", "p", "2").json(&json!({})).header("X-HTTP-Method", "MERGE").send();
    alone.refused(TUNNEL_NOT_POST);
}

fn a_boundary_ends_a_body_in_every_frame(client: &Client) {
    let t = client.table();
    let entity = |row: &str| with_keys("p", row, json!({ "A": 1 }));
    let mut rows = 0;
    for batch in [Batch::new(), Batch::with_bare_line_feeds()] {
        let end = batch.newline;
        for (quote, before, after) in [
            ("", "", ""),
            ("\"", "", ""),
            ("", "a preamble--batch_b", "an epilogue--batch_b"),
            ("\"", "", "x"),
        ] {
            for closing in [("--", "--"), ("--", ""), ("", "--"), ("", "")] {
                let first = rows;
                rows += 2;
                let batch = batch
                    .clone()
                    .insert(&t, &entity(&first.to_string()))
                    .insert(&t, &entity(&(first + 1).to_string()));
                let body = batch.body().replace(&format!("}}{end}--"), "}--");
                let body =
                    body.replace("boundary=changeset_c", &format!("boundary={quote}changeset_c{quote}"));
                let body = body.replace("--changeset_c--", &format!("--changeset_c{}", closing.0));
                let body = body.replace("--batch_b--", &format!("--batch_b{}", closing.1));
                // What follows a last boundary without dashes would be a part.
                let after = if closing.1.is_empty() { "" } else { after };
                let kind = format!("multipart/mixed; boundary={quote}batch_b{quote}");
                let request =
                    post(client, format!("{before}{end}{body}{after}")).header("Content-Type", kind);
                let answer = BatchAnswer::of(request.send());
                assert_eq!(statuses(&answer), [204, 204], "{}", answer.outer);
            }
        }
    }
    assert_eq!(t.matches("A eq 1").len(), rows);
}

fn what_follows_a_boundary_on_its_line_makes_it_content(client: &Client) {
    let t = client.table();
    for (row, text) in ["--changeset_c", "--changeset_c--", "x--changeset_cx", "--changeset_c x", "--batch_b"]
        .iter()
        .enumerate()
    {
        let row = row.to_string();
        let body = Batch::new().insert(&t, &with_keys("p", &row, json!({ "S": text }))).body();
        // In front of an escaped line break, of the closing quote, and of a blank with text behind it.
        let body = body.replace(&format!("{text}\""), &format!("{text}\\r\\n{text} {text}\""));
        assert_eq!(statuses(&BatchAnswer::of(post(client, body).send())), [204], "{text}");
    }
    assert_eq!(t.count(), 5);
}

/// Neither the parts nor the batch named a format, and the parts had no condition.
fn deletions_of_the_retired_sdk_for_rust_ask_for_atom(client: &Client) {
    let t = client.table();
    t.seed_rows("city", ["surnameA", "surnameB"]);
    let part = |row: &str, headers: &str| {
        format!(
            "--changeset_c\nContent-Type: application/http\nContent-Transfer-Encoding: binary\n\n\
             DELETE {} HTTP/1.1\n{headers}\n\n",
            client.url(&t.path("city", row))
        )
    };
    let body = |headers: &str| {
        format!(
            "--batch_b\nContent-Type: multipart/mixed; boundary=changeset_c\n\n{}{}--changeset_c--\n--batch_b\n",
            part("surnameA", headers),
            part("surnameB", headers)
        )
    };
    let send = |headers: &str, accept: Option<&str>, version: &str| {
        let request = post(client, body(headers)).version(version).without("Accept");
        BatchAnswer::of(match accept {
            Some(accept) => request.header("Accept", accept).send(),
            None => request.send(),
        })
    };
    for version in ["2015-12-11", "2019-12-12", "2026-06-06"] {
        for accept in [None, Some("*/*"), Some("")] {
            let answer = send("", accept, version);
            assert_eq!(answer.parts.len(), 1, "{}", answer.outer);
            let part = &answer.parts[0];
            assert_eq!((part.status, part.need("Content-Type")), (415, "application/xml;charset=utf-8"));
            let told = "<code>AtomFormatNotSupported</code><message xml:lang=\"en-US\">\
                        0:Atom format is not supported.\n";
            assert!(part.body.contains(told), "{}", part.raw);
        }
        // A format is named by the batch or by the part.
        send("", Some("application/json"), version).refused(0, INVALID_INPUT);
        send("Accept: application/json;odata=minimalmetadata\n", None, version).refused(0, INVALID_INPUT);
    }
    assert_eq!(t.count(), 2);
    // Where there is Atom, the condition is what is missing.
    let old = send("", None, "2014-02-14");
    assert_eq!((old.parts.len(), old.parts[0].status), (1, 400), "{}", old.outer);
    // With a condition there is nothing to print, and no format needed.
    assert_eq!(statuses(&send("If-Match: *\n", None, "2019-12-12")), [204, 204]);
    assert_eq!(t.count(), 0);
}
