//! The three metadata levels (protocol §4.1 to §4.4).

use crate::support::*;
use serde_json::json;

cases! {
    an_insert_echoes_at_every_level, full_metadata_encodes_keys_in_id_and_link,
    infinities_are_annotated_and_finite_doubles_are_not, properties_keep_the_order_of_insertion,
    properties_are_in_ordinal_order_after_an_update, names_beyond_the_basic_plane_come_before_its_end,
    a_page_shows_entities_of_several_shapes_in_their_order, accept_chooses_the_level,
    a_read_without_accept_asks_for_atom, a_write_without_accept_is_answered_in_json, format_overrides_accept,
    verbose_json_is_not_supported, other_types_are_not_supported, errors_speak_the_level_that_was_asked_for,
    metadata_addresses_follow_the_host_that_was_asked, entries_and_feeds_are_as_recorded,
}

/// One property of each type.
fn colourful() -> serde_json::Value {
    json!({
        "B": true,
        "D": 1.5,
        "G": "c9da6455-213d-42c9-9a79-3e9149a57833", "G@odata.type": "Edm.Guid",
        "I": 42,
        "L": "5", "L@odata.type": "Edm.Int64",
        "N": "NaN", "N@odata.type": "Edm.Double",
        "S": "x",
        "T": "2014-05-07T08:20:53Z", "T@odata.type": "Edm.DateTime",
        "X": "AQIy", "X@odata.type": "Edm.Binary",
    })
}

/// The properties as minimal and full metadata print them.
const TYPED: &str = r#""B":true,"D":1.5,"G@odata.type":"Edm.Guid","G":"c9da6455-213d-42c9-9a79-3e9149a57833","I":42,"L@odata.type":"Edm.Int64","L":"5","N@odata.type":"Edm.Double","N":"NaN","S":"x","T@odata.type":"Edm.DateTime","T":"2014-05-07T08:20:53Z","X@odata.type":"Edm.Binary","X":"AQIy""#;

/// The properties as no metadata prints them.
const BARE: &str = r#""B":true,"D":1.5,"G":"c9da6455-213d-42c9-9a79-3e9149a57833","I":42,"L":"5","N":"NaN","S":"x","T":"2014-05-07T08:20:53Z","X":"AQIy""#;

/// An entity, the path to it and what of its text is not known beforehand.
struct Sample<'a> {
    table: Table<'a>,
    etag: String,
    time: String,
}

fn sample(client: &Client) -> Sample<'_> {
    let table = client.table();
    let etag = table.seed_one(colourful());
    let time = timestamp_of(&etag);
    Sample { table, etag, time }
}

impl Sample<'_> {
    fn read(&self, level: &str) -> String {
        self.table.on("GET", "p", "r").level(level).send().expect(200).text().to_owned()
    }

    fn feed(&self, level: &str) -> String {
        let request = self.table.client.request("GET", &format!("/{}()", self.table.name));
        request.level(level).send().expect(200).text().to_owned()
    }

    fn minimal(&self) -> String {
        let (etag, time) = (json!(self.etag), &self.time);
        format!(r#""odata.etag":{etag},"PartitionKey":"p","RowKey":"r","Timestamp":"{time}",{TYPED}"#)
    }

    fn full(&self) -> String {
        let client = self.table.client;
        let path = self.table.path("p", "r");
        format!(
            r#""odata.type":"{}.{}","odata.id":"{}","odata.etag":{},"odata.editLink":"{}","PartitionKey":"p","RowKey":"r","Timestamp@odata.type":"Edm.DateTime","Timestamp":"{}",{TYPED}"#,
            client.account.name,
            self.table.name,
            client.url(&path),
            json!(self.etag),
            &path[1..],
            self.time,
        )
    }

    fn none(&self) -> String {
        format!(r#""PartitionKey":"p","RowKey":"r","Timestamp":"{}",{BARE}"#, self.time)
    }

    fn context(&self, rest: &str) -> String {
        format!(
            r#""odata.metadata":"{}""#,
            self.table.client.url(&format!("/$metadata#{}{rest}", self.table.name))
        )
    }
}

fn an_insert_echoes_at_every_level(client: &Client) {
    let t = client.table();
    for level in ["nometadata", "minimalmetadata", "fullmetadata"] {
        let answer = t.inserting(&with_keys("p", level, colourful())).level(level).send().expect(201);
        assert_eq!(answer.need("Content-Type"), answer.odata_type());
        let read = t.on("GET", "p", level).level(level).send().expect(200);
        assert_eq!(answer.text(), read.text());
    }
}

fn full_metadata_encodes_keys_in_id_and_link(client: &Client) {
    let t = client.table();
    for key in ["it's", "a b", "é\"", "50%", "a+b,c=d"] {
        t.seed(with_keys(key, key, json!({})));
        let entity = t.on("GET", key, key).level("fullmetadata").send().expect_json();
        // UNVERIFIED 22
        let path = printed_entity_path(&t.name, key, key);
        assert_eq!(entity["odata.id"], json!(client.url(&path)));
        assert_eq!(entity["odata.editLink"], json!(&path[1..]));
    }
}

fn infinities_are_annotated_and_finite_doubles_are_not(client: &Client) {
    let t = client.table();
    t.seed_one(json!({
        "A@odata.type": "Edm.Double", "A": "Infinity", "B@odata.type": "Edm.Double", "B": "-Infinity", "C": 2.0,
    }));
    for level in ["minimalmetadata", "fullmetadata"] {
        let text = t.on("GET", "p", "r").level(level).send().text().to_owned();
        let expected = r#""A@odata.type":"Edm.Double","A":"Infinity","B@odata.type":"Edm.Double","B":"-Infinity","C":2.0}"#;
        assert!(text.ends_with(expected), "{text}");
    }
    let text = t.on("GET", "p", "r").level("nometadata").send().text().to_owned();
    assert!(text.ends_with(r#""A":"Infinity","B":"-Infinity","C":2.0}"#), "{text}");
}

/// What a text shows between the Timestamp and the end of its first entity.
#[track_caller]
fn shown(text: &str) -> String {
    let (_, rest) = text.split_once("\"Timestamp\":").unwrap_or_else(|| panic!("no entity: {text}"));
    let (_, properties) = rest.split_once(',').unwrap_or_default();
    properties.split_once('}').unwrap_or_default().0.to_owned()
}

impl Sample<'_> {
    fn of(table: Table<'_>) -> Sample<'_> {
        Sample { table, etag: String::new(), time: String::new() }
    }

    /// The properties of the entity, which a read and a query show alike.
    #[track_caller]
    fn shown(&self) -> String {
        for level in ["nometadata", "minimalmetadata", "fullmetadata"] {
            assert_eq!(shown(&self.feed(level)), shown(&self.read(level)), "{level}");
        }
        shown(&self.read("minimalmetadata"))
    }
}

fn properties_keep_the_order_of_insertion(client: &Client) {
    let table = client.table();
    let sent = r#""Z":1,"é":2,"A@odata.type":"Edm.Int64","A":"3","_x":4,"aa":5,"B":6"#;
    let ordinal = r#""A@odata.type":"Edm.Int64","A":"3","B":6,"Z":1,"_x":4,"aa":5,"é":2"#;
    let body = format!(r#"{{"PartitionKey":"p",{sent},"RowKey":"r"}}"#);
    let answer = client.request("POST", &table.set()).raw_json(body).send().expect(201);
    assert_eq!(shown(answer.text()), sent, "the answer");
    let read = Sample::of(table).shown();
    // PostgreSQL does not keep it.
    assert!([sent, ordinal].contains(&read.as_str()), "{read}");
}

/// An entity, and what it is written with.
const INSERTED: &str = r#"{"PartitionKey":"p","RowKey":"r","b":0,"Zz":1,"a":0}"#;
const SENT: &str = r#"{"b":2,"é":3,"a1":6,"_":7,"B@odata.type":"Edm.Int64","B":"8","aBc":9,"Z":10}"#;
const REPLACED: &str = r#""B@odata.type":"Edm.Int64","B":"8","Z":10,"_":7,"a1":6,"aBc":9,"b":2,"é":3"#;
const MERGED: &str =
    r#""B@odata.type":"Edm.Int64","B":"8","Z":10,"Zz":1,"_":7,"a":0,"a1":6,"aBc":9,"b":2,"é":3"#;

fn properties_are_in_ordinal_order_after_an_update(client: &Client) {
    for verb in ["PUT", "MERGE", "PATCH"] {
        for (there, condition) in [(true, Some("*")), (true, None), (false, None)] {
            for in_batch in [false, true] {
                let table = client.table();
                if there {
                    client.request("POST", &table.set()).raw_json(INSERTED).send().expect(201);
                }
                if in_batch {
                    let headers = ["Content-Type: application/json", "If-Match: *"];
                    let headers = &headers[..1 + usize::from(condition.is_some())];
                    let url = client.url(&table.path("p", "r"));
                    Batch::new().operation(verb, &url, headers, SENT).commit(client);
                } else {
                    table.on(verb, "p", "r").raw_json(SENT).if_match(condition).send().expect(204);
                }
                let expected = if there && verb != "PUT" { MERGED } else { REPLACED };
                assert_eq!(Sample::of(table).shown(), expected, "{verb} {condition:?} {there} {in_batch}");
            }
        }
    }
}

fn names_beyond_the_basic_plane_come_before_its_end(client: &Client) {
    let table = client.table();
    let body = "{\"\u{F900}\":1,\"\u{10400}\":2,\"\u{D55C}\":3}";
    table.on("PUT", "p", "r").raw_json(body).send().expect(204);
    assert_eq!(Sample::of(table).shown(), "\"\u{D55C}\":3,\"\u{10400}\":2,\"\u{F900}\":1");
}

fn a_page_shows_entities_of_several_shapes_in_their_order(client: &Client) {
    let t = client.table();
    for (row, body) in [
        ("1", r#"{"c":1,"bb":1.5,"AAA":"x"}"#),
        ("2", r#"{"c":2,"bb":2.5,"AAA":"y"}"#),
        ("3", r#"{"c":3,"AAA":"z"}"#),
        ("4", r#"{"c":4,"bb":"NaN","bb@odata.type":"Edm.Double","AAA":"x"}"#),
        ("5", r#"{"c":"\u0000","bb":5.5,"AAA":"\"bb\":1"}"#),
        ("6", r#"{"c":6,"bb":6.5,"AAA":"é"}"#),
    ] {
        t.on("PUT", "p", row).raw_json(body).send().expect(204);
    }
    let request = client.request("GET", &format!("/{}()", t.name)).level("minimalmetadata");
    let text = request.send().expect(200).text().to_owned();
    let entities: Vec<String> = text.split("\"odata.etag\":").skip(1).map(shown).collect();
    assert_eq!(
        entities,
        [
            r#""AAA":"x","bb":1.5,"c":1"#,
            r#""AAA":"y","bb":2.5,"c":2"#,
            r#""AAA":"z","c":3"#,
            r#""AAA":"x","bb@odata.type":"Edm.Double","bb":"NaN","c":4"#,
            r#""AAA":"\"bb\":1","bb":5.5,"c":"\u0000""#,
            r#""AAA":"é","bb":6.5,"c":6"#,
        ]
    );
}

fn accept_chooses_the_level(client: &Client) {
    let t = client.table();
    t.seed_one(json!({}));
    for (accept, level) in [
        ("application/json;odata=nometadata", "nometadata"),
        ("application/json;odata=minimalmetadata", "minimalmetadata"),
        ("application/json;odata=fullmetadata", "fullmetadata"),
        ("application/json; odata=fullmetadata", "fullmetadata"),
        ("application/json;  odata=nometadata ", "nometadata"),
        ("application/json", "minimalmetadata"),
        ("application/json;odata=fullmetadata;streaming=true;charset=utf-8", "fullmetadata"),
        ("APPLICATION/JSON;ODATA=NOMETADATA", "nometadata"),
        ("*/*", "minimalmetadata"),
        ("application/json;q=0.5,application/json;odata=nometadata", "nometadata"),
        ("text/html, application/json;odata=nometadata", "nometadata"),
    ] {
        let answer = t.on("GET", "p", "r").header("Accept", accept).send().expect(200);
        let kind = format!("application/json;odata={level};streaming=true;charset=utf-8");
        assert_eq!(answer.need("Content-Type"), kind, "{accept}");
    }
}

fn a_read_without_accept_asks_for_atom(client: &Client) {
    let t = client.table();
    t.seed_one(json!({}));
    let paths = [t.path("p", "r"), t.set(), "/Tables".into(), format!("/Tables('{}')", t.name)];
    for path in &paths {
        for version in ["2015-12-11", "2017-11-09", "2026-06-06"] {
            let get = client.request("GET", path).version(version);
            get.clone().without("Accept").send().refused_in_table_xml(ATOM_FORMAT);
            get.header("Accept", "").send().refused_in_table_xml(ATOM_FORMAT);
        }
        let get = client.request("GET", &format!("{path}?$format=json")).without("Accept");
        get.send().expect_json();
    }
    let missing = t.on("GET", "p", "x").without("Accept").send();
    assert_eq!(missing.need("Content-Type"), "application/xml;charset=utf-8", "{missing}");
    let policies = format!("/{}?comp=acl", t.name);
    client.request("GET", &policies).without("Accept").send().expect_xml();
}

fn a_write_without_accept_is_answered_in_json(client: &Client) {
    let t = client.table();
    let made = t.inserting(&with_keys("p", "r", json!({}))).without("Accept").send().expect(201);
    assert_eq!(made.need("Content-Type"), made.odata_type());
    t.inserting(&with_keys("p", "r", json!({}))).without("Accept").send().refused(ENTITY_EXISTS);
    t.on("DELETE", "p", "x").header("If-Match", "*").without("Accept").send().refused(NOT_FOUND);
}

fn format_overrides_accept(client: &Client) {
    let t = client.table();
    t.seed_one(json!({}));
    for (format, level) in [
        ("json", "minimalmetadata"),
        ("application/json;odata=nometadata", "nometadata"),
        ("application/json;odata=minimalmetadata", "minimalmetadata"),
        ("application/json;odata=fullmetadata", "fullmetadata"),
    ] {
        let path = format!("{}?$format={}", t.path("p", "r"), escape(format));
        for accept in [
            "application/json;odata=nometadata",
            "application/json;odata=fullmetadata",
            "application/atom+xml",
        ] {
            let answer = client.request("GET", &path).header("Accept", accept).send().expect(200);
            let kind = format!("application/json;odata={level};streaming=true;charset=utf-8");
            assert_eq!(answer.need("Content-Type"), kind, "{format} over {accept}");
        }
    }
}

fn verbose_json_is_not_supported(client: &Client) {
    let t = client.table();
    let request = client.request("GET", &t.set()).header("Accept", "application/json;odata=verbose");
    request.send().refused(VERBOSE_JSON);
}

fn other_types_are_not_supported(client: &Client) {
    let t = client.table();
    for accept in ["text/html", "image/png", "application/yaml"] {
        let answer = client.request("GET", &t.set()).header("Accept", accept).send();
        assert_eq!(answer.status, 415, "{answer}");
        assert!(answer.text().contains("MediaTypeNotSupported"), "{answer}");
    }
}

fn errors_speak_the_level_that_was_asked_for(client: &Client) {
    let t = client.table();
    for level in ["nometadata", "minimalmetadata", "fullmetadata"] {
        t.on("GET", "p", "gone").level(level).send().refused(NOT_FOUND);
    }
    t.on("GET", "p", "gone").header("Accept", "application/json").send().refused(NOT_FOUND);
}

fn metadata_addresses_follow_the_host_that_was_asked(client: &Client) {
    let t = client.table();
    let text = String::from_utf8(client.request("GET", &t.set()).bytes()).expect("plain text");
    let host = format!("Host: {}\r\n", client.host());
    let raw = client.wire().exchange("GET", text.replacen(&host, "Host: other.example:99\r\n", 1).as_bytes());
    let body = String::from_utf8(raw.body).expect("UTF-8");
    let expected = format!("\"http://other.example:99{}", client.target("/$metadata#"));
    assert!(body.contains(&expected), "{body}");
}

fn entries_and_feeds_are_as_recorded(client: &Client) {
    let sample = sample(client);
    for (level, properties) in [("minimalmetadata", sample.minimal()), ("fullmetadata", sample.full())] {
        let entry = format!("{{{},{properties}}}", sample.context("/@Element"));
        assert_eq!(sample.read(level), entry);
        let feed = format!(r#"{{{},"value":[{{{properties}}}]}}"#, sample.context(""));
        assert_eq!(sample.feed(level), feed);
    }
    assert_eq!(sample.read("nometadata"), format!("{{{}}}", sample.none()));
    assert_eq!(sample.feed("nometadata"), format!(r#"{{"value":[{{{}}}]}}"#, sample.none()));
}
