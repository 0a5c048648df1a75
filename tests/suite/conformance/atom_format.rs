//! Which clients get Atom, its errors, and hostile documents (protocol §4.1,
//! §4.6, §4.7).

use serde_json::json;

use crate::support::atom::*;
use crate::support::*;

cases! {
    old_clients_get_atom_unless_they_ask_for_more, json_is_not_supported_before_its_version,
    atom_is_not_supported_since_2015_12_11, versions_that_know_both_answer_what_is_asked,
    errors_follow_what_was_asked, front_end_errors_have_prefixes_in_every_named_version,
    bodies_are_what_their_content_type_says, a_body_without_a_content_type_is_looked_at,
    what_is_no_entry_is_refused, bad_values_are_refused, keys_are_needed_once_and_must_be_text,
    a_great_many_properties_are_refused, prefixes_do_not_matter, foreign_namespaces_are_refused,
    tables_need_a_name, signatures_work_for_old_clients,
}

fn seeded(client: &Client) -> Table<'_> {
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    t
}

fn old_clients_get_atom_unless_they_ask_for_more(client: &Client) {
    let t = seeded(client);
    for version in CLASSIC.into_iter().chain(MODERN) {
        let get = request(client, version, "GET", &t.path("p", "r"));
        for accept in
            ["application/atom+xml", "application/xml", "application/atom+xml,application/xml", "*/*"]
        {
            let answer = get.clone().header("Accept", accept).send();
            // UNVERIFIED 17: what a client means that names neither.
            if version.is_some() || accept != "*/*" {
                document(answer, 200, version, "entry");
            }
        }
        document(get.without("Accept").send(), 200, version, "entry");
    }
}

fn json_is_not_supported_before_its_version(client: &Client) {
    let t = seeded(client);
    for version in ["2009-04-14", "2009-09-19", "2011-08-18", "2012-02-12"] {
        let get = request(client, Some(version), "GET", &t.path("p", "r"));
        for accept in ["application/json", "application/json;odata=nometadata"] {
            let answer = get.clone().header("Accept", accept).send();
            assert_eq!(answer.status, 415, "{version} {answer}");
            assert!(answer.text().contains(&format!("<code>{}</code>", JSON_FORMAT.1)), "{answer}");
        }
        // Nobody could ask for it this way then.
        let path = format!("{}?$format=json", t.path("p", "r"));
        request(client, Some(version), "GET", &path).send().expect(200);
        let insert = request(client, Some(version), "POST", &t.set()).json(&with_keys("p", "2", json!({})));
        let answer = insert.send();
        assert_eq!(answer.status, 415, "{version} {answer}");
        assert!(answer.text().contains(JSON_FORMAT.1), "{answer}");
    }
    assert_eq!(t.count(), 1);
}

fn atom_is_not_supported_since_2015_12_11(client: &Client) {
    let t = seeded(client);
    for version in ["2015-12-11", "2017-04-17", "2019-02-02", "2026-06-06"] {
        let get = request(client, Some(version), "GET", &t.path("p", "r"));
        for accept in ["application/atom+xml", "application/xml", "application/atom+xml,application/xml"] {
            let answer = get.clone().header("Accept", accept).send();
            answer.refused(ATOM_FORMAT);
        }
        let insert = sending(client, Some(version), "POST", &t.set(), &keys("p", "2"));
        insert.header("Accept", "application/json").send().refused(ATOM_FORMAT);
        let path = format!("{}?$format=atom", t.path("p", "r"));
        request(client, Some(version), "GET", &path).send().refused(ATOM_FORMAT);
        // Whatever has a document, sent or asked for.
        for path in [t.set(), format!("/{}()", t.name), "/Tables".into(), format!("/Tables('{}')", t.name)] {
            request(client, Some(version), "GET", &path).send().refused(ATOM_FORMAT);
        }
        let name = fresh_name();
        let table = |accept: &str| {
            sending(client, Some(version), "POST", "/Tables", &format!("<d:TableName>{name}</d:TableName>"))
                .header("Accept", accept)
        };
        table("application/json").send().refused(ATOM_FORMAT);
        let json = json!({ "TableName": name });
        table("application/atom+xml").json(&json).send().refused(ATOM_FORMAT);
        client.get(&format!("/Tables('{name}')")).refused(NOT_FOUND);
        for (verb, etag) in [("PUT", None), ("MERGE", None), ("PATCH", Some("*")), ("PUT", Some("*"))] {
            let write = sending(client, Some(version), verb, &t.path("p", "r"), "<d:A>2</d:A>");
            write.header("Accept", "application/json").if_match(etag).send().refused(ATOM_FORMAT);
        }
        // A body of no declared kind that looks like Atom is Atom. A POST must declare it.
        let bare = sending(client, Some(version), "PUT", &t.path("p", "3"), &keys("p", "3"));
        bare.without("Content-Type").header("Accept", "application/json").send().refused(ATOM_FORMAT);
        // Where there is no document there is nothing to refuse.
        let merge = request(client, Some(version), "MERGE", &t.path("p", "r")).json(&json!({ "A": 1 }));
        merge.if_match(Some("*")).send().expect(204);
    }
    assert_eq!(t.properties(), json!({ "A": 1 }));
    assert_eq!(t.count(), 1);
}

fn versions_that_know_both_answer_what_is_asked(client: &Client) {
    let t = seeded(client);
    for version in MODERN {
        let get = |path: &str, accept: &str| {
            request(client, version, "GET", path).header("Accept", accept).send().expect(200)
        };
        let path = t.path("p", "r");
        let kind = |answer: Answer| answer.need("Content-Type").to_owned();
        let json = "application/json;odata=minimalmetadata;streaming=true;charset=utf-8";
        assert_eq!(kind(get(&path, "application/json")), json);
        assert_eq!(
            kind(get(&path, "application/json;odata=minimalmetadata,application/atom+xml;q=0.5")),
            json
        );
        assert_eq!(
            kind(get(&path, "application/atom+xml,application/json;q=0.5")),
            content_type(version, "entry")
        );
        assert_eq!(kind(get(&format!("{path}?$format=json"), "application/atom+xml")), json);
        let mixed = sending(client, version, "POST", &t.set(), &keys("m", version.expect("named")));
        let answer = mixed.header("Accept", "application/json").send().expect(201);
        assert_eq!(answer.json()["PartitionKey"], "m");
        let body = with_keys("j", version.expect("named"), json!({}));
        let mixed = request(client, version, "POST", &t.set()).json(&body).send();
        assert!(document(mixed, 201, version, "entry").contains("<d:PartitionKey>j</d:PartitionKey>"));
    }
}

fn errors_follow_what_was_asked(client: &Client) {
    let missing = Table::new(client, fresh_name());
    for version in CLASSIC.into_iter().chain(MODERN) {
        let answer = request(client, version, "GET", &missing.path("p", "r")).send();
        assert_eq!(answer.header("x-ms-error-code"), None, "{answer}");
        refused(answer, version, NO_TABLE);
        let query = format!("/{}()?$filter=%3Cbad%20%26", missing.name);
        let answer = request(client, version, "GET", &query).send();
        let message = "Syntax error: character '&lt;' is not valid at position 0 in '&lt;bad &amp;'.";
        refused(answer, version, (400, "InvalidInput", message));
    }
    for version in MODERN {
        let json = request(client, version, "GET", &missing.path("p", "r")).level("nometadata");
        json.send().refused(NO_TABLE);
    }
}

fn front_end_errors_have_prefixes_in_every_named_version(client: &Client) {
    for version in CLASSIC.into_iter().chain(MODERN) {
        let bad = Auth::Header(format!("SharedKey {}:AAAA", client.account.name));
        request(client, version, "GET", "/Tables").auth(bad).send().turned_away(NOT_AUTHENTICATED);
    }
}

fn bodies_are_what_their_content_type_says(client: &Client) {
    let t = client.table();
    let version = Some("2014-02-14");
    let types = [
        "application/atom+xml",
        "application/atom+xml;type=entry",
        "application/xml",
        "Application/Atom+XML; charset=utf-8",
    ];
    for (at, kind) in types.into_iter().enumerate() {
        let send = sending(client, version, "POST", &t.set(), &keys("p", &at.to_string()));
        send.header("Content-Type", kind).send().expect(201);
    }
    let send = sending(client, version, "POST", &t.set(), &keys("p", "x"));
    refused(send.clone().header("Content-Type", "text/plain").send(), version, MEDIA_TYPE);
    let as_json = send.header("Content-Type", "application/json").send();
    assert_eq!(as_json.status, 400, "{as_json}");
    let json = request(client, version, "POST", &t.set()).json(&with_keys("p", "x", json!({})));
    let as_atom = json.header("Content-Type", "application/atom+xml").send();
    assert_eq!(as_atom.status, 400, "{as_atom}");
    assert_eq!(t.count(), types.len());
}

fn a_body_without_a_content_type_is_looked_at(client: &Client) {
    let t = client.table();
    for version in [Some("2009-09-19"), Some("2013-08-15")] {
        let row = version.expect("named");
        sending(client, version, "POST", &t.set(), &keys("p", row)).send().expect(201);
        let send = sending(client, version, "PUT", &t.path("p", row), "").header("If-Match", "*");
        send.without("Content-Type").send().expect(204);
    }
    assert_eq!(t.count(), 2);
}

/// What a body as a whole is answered with.
fn send_raw(t: &Table, body: impl Into<Vec<u8>>) -> Answer {
    let request = request(t.client, Some("2012-02-12"), "POST", &t.set());
    request.header("Content-Type", "application/atom+xml").body(body).send()
}

#[track_caller]
fn all_refused(t: &Table, bodies: &[String]) {
    for body in bodies {
        let answer = send_raw(t, body.clone());
        assert_eq!(answer.status, 400, "{} {answer}", &body[..body.len().min(300)]);
        assert_eq!(answer.need("Content-Type"), "application/xml", "{answer}");
    }
    assert_eq!(t.count(), 0);
}

fn what_is_no_entry_is_refused(client: &Client) {
    let t = client.table();
    let good = entry(&keys("p", "r"));
    all_refused(
        &t,
        &[
            String::new(),
            "x".into(),
            "{}".into(),
            "<entry/>".into(),
            good.replace("entry", "feed"),
            good.replace("m:properties", "m:other"),
            good.replace("</entry>", ""),
            good.replace("</m:properties>", ""),
            format!("{good}<entry/>"),
            format!("{good}text"),
        ],
    );
    let mut latin = good.into_bytes();
    let at = latin.len() - 60;
    latin[at] = 0xff;
    assert_eq!(send_raw(&t, latin).status, 400);
}

fn bad_values_are_refused(client: &Client) {
    let t = client.table();
    let bodies: Vec<String> = [
        ("Edm.Int32", "x"),
        ("Edm.Int32", "2147483648"),
        ("Edm.Int32", ""),
        ("Edm.Int64", "9223372036854775808"),
        ("Edm.Boolean", "yes"),
        ("Edm.Double", "x"),
        ("Edm.Guid", "x"),
        ("Edm.Binary", "="),
        ("Edm.DateTime", "yesterday"),
        ("Edm.Nothing", "x"),
        ("Int32", "5"),
    ]
    .into_iter()
    .map(|(kind, text)| entry(&format!("{}<d:A m:type=\"{kind}\">{text}</d:A>", keys("p", "r"))))
    .collect();
    all_refused(&t, &bodies);
}

fn keys_are_needed_once_and_must_be_text(client: &Client) {
    let version = Some("2012-02-12");
    let t = client.table();
    let send = |properties: &str| sending(client, version, "POST", &t.set(), properties).send();
    refused(send("<d:PartitionKey>p</d:PartitionKey>"), version, NEED_VALUE);
    refused(send("<d:RowKey>r</d:RowKey>"), version, NEED_VALUE);
    refused(send("<d:PartitionKey>p</d:PartitionKey><d:RowKey m:null=\"true\" />"), version, NEED_VALUE);
    refused(send(&(keys("p", "r") + "<d:A>1</d:A><d:A>2</d:A>")), version, DUPLICATE_PROPERTY);
    refused(send(&(keys("p", "r") + "<d:RowKey>r</d:RowKey>")), version, DUPLICATE_KEY);
    let number = "<d:PartitionKey m:type=\"Edm.Int32\">5</d:PartitionKey><d:RowKey>r</d:RowKey>";
    refused(send(number), version, INVALID_INPUT);
    assert_eq!(t.count(), 0);
}

fn a_great_many_properties_are_refused(client: &Client) {
    let t = client.table();
    let many = |count: i32| -> String { (0..count).map(|i| format!("<d:a{i}>1</d:a{i}>")).collect() };
    refused(send_raw(&t, entry(&(keys("p", "r") + &many(253)))), Some("2012-02-12"), TOO_MANY_PROPERTIES);
    refused(send_raw(&t, entry(&(keys("p", "r") + &many(150_000)))), Some("2012-02-12"), BAD_BODY);
    assert_eq!(t.count(), 0);
}

fn prefixes_do_not_matter(client: &Client) {
    let t = client.table();
    let body =
        entry(&keys("p", "r")).replace("d:", "data:").replace("m:", "meta:").replace("xmlns=", "xmlns:a=");
    let body = body.replace("xmlns:d=", "xmlns:data=").replace("xmlns:m=", "xmlns:meta=");
    let body = body.replace("<entry", "<a:entry").replace("</entry", "</a:entry");
    let body = body.replace("<content", "<a:content").replace("</content", "</a:content");
    send_raw(&t, body).expect(201);
    t.get("p", "r").expect(200);
}

fn foreign_namespaces_are_refused(client: &Client) {
    let t = client.table();
    let good = entry(&(keys("p", "r") + "<d:A m:type=\"Edm.Int32\">1</d:A>"));
    let foreign = |part: &str, other: &str| good.replacen(part, other, 1);
    all_refused(
        &t,
        &[
            foreign("dataservices\"", "other\""),
            foreign("dataservices/metadata\"", "other\""),
            foreign("http://www.w3.org/2005/Atom", "http://example.org/Atom"),
            foreign(" xmlns=\"http://www.w3.org/2005/Atom\"", ""),
            foreign("<d:A ", "<x:B xmlns:x=\"urn:x\">2</x:B><d:A "),
            foreign("<d:A ", "<m:B>2</m:B><d:A "),
            foreign("<d:A ", "<B>2</B><d:A "),
            foreign("<title />", "<title /><x:where xmlns:x=\"urn:x\" />"),
            foreign("m:type", "type"),
            foreign("m:type", "d:type"),
            foreign("m:type", "xmlns:x=\"urn:x\" x:type"),
            // Declared by nothing.
            foreign("m:type", "x:type"),
            foreign("<title />", "<x:title />"),
        ],
    );
    let unused =
        foreign("<entry ", "<entry xmlns:gml=\"http://www.opengis.net/gml\" xml:base=\"http://h/\" ");
    send_raw(&t, unused.replace("<d:A ", "<d:A xml:space=\"preserve\" ")).expect(201);
}

fn tables_need_a_name(client: &Client) {
    for version in [Some("2009-09-19"), Some("2014-02-14")] {
        let send = |body: &str| sending(client, version, "POST", "/Tables", body).send();
        refused(send(""), version, NEED_VALUE);
        refused(send("<d:TableName m:null=\"true\" />"), version, NEED_VALUE);
        refused(send("<d:TableName>a&amp;b</d:TableName>"), version, TABLE_NAME);
    }
}

fn signatures_work_for_old_clients(client: &Client) {
    let t = seeded(client);
    let version = Some("2012-02-12");
    let bearer = Sas::table(&t.name, "r").set("sv", "2012-02-12").of(client);
    // The version of the signature is that of the request.
    let get = request(&bearer, None, "GET", &t.path("p", "r"));
    assert!(document(get.send(), 200, version, "entry").contains("<d:RowKey>r</d:RowKey>"));
    let insert = sending(&bearer, version, "POST", &t.set(), &keys("p", "2")).send();
    refused(insert, version, PERMISSION);
}
