//! What clients do that know only Atom (protocol §4.6).

use serde_json::json;

use crate::support::atom::*;
use crate::support::*;

cases! {
    tables_are_created_listed_and_deleted, an_inserted_entity_comes_back, entries_have_the_recorded_layout,
    feeds_have_the_recorded_layout, every_type_is_read, every_type_is_printed,
    special_doubles_are_spelled_as_in_xml, text_is_escaped_and_unescaped, white_space_around_text_is_kept,
    null_and_missing_types_are_understood, booleans_may_be_digits, a_null_that_is_no_boolean_is_refused,
    what_xml_cannot_hold_is_printed_as_references, text_in_another_encoding_is_refused,
    entities_are_updated_and_merged_under_a_condition, upserts_work_since_2011,
    before_2011_every_update_needs_a_condition, deleting_needs_a_condition_in_every_version,
    queries_filter_and_page, selected_properties_are_printed_alone,
    properties_are_in_ordinal_order_after_an_update, keys_with_special_characters_are_addressed,
}

fn all() -> impl Iterator<Item = Option<&'static str>> {
    CLASSIC.into_iter().chain(MODERN)
}

/// Inserts `p`, `r` with these properties.
#[track_caller]
fn insert(t: &Table, version: Option<&str>, properties: &str) -> String {
    let properties = keys("p", "r") + properties;
    document(sending(t.client, version, "POST", &t.set(), &properties).send(), 201, version, "entry")
}

/// The entry of `p`, `r`.
#[track_caller]
fn get(t: &Table, version: Option<&str>) -> String {
    document(request(t.client, version, "GET", &t.path("p", "r")).send(), 200, version, "entry")
}

/// The custom properties of an entry, as text.
#[track_caller]
fn properties(entry: &str) -> &str {
    let inner = entry.split_once("</d:Timestamp>").and_then(|(_, rest)| rest.split_once("</m:properties>"));
    inner.unwrap_or_else(|| panic!("no properties: {entry}")).0
}

fn tables_are_created_listed_and_deleted(client: &Client) {
    for version in all() {
        let name = fresh_name();
        let body = format!("<d:TableName>{name}</d:TableName>");
        let created = sending(client, version, "POST", "/Tables", &body).send();
        assert_eq!(created.need("Location"), client.url(&format!("/Tables('{name}')")), "{created}");
        let created = document(created, 201, version, "entry");
        assert!(created.contains(&format!("<m:properties>{body}</m:properties>")), "{created}");
        assert!(!created.contains("m:etag"), "{created}");
        let again = sending(client, version, "POST", "/Tables", &body).send();
        refused(again, version, TABLE_EXISTS);
        let list = document(request(client, version, "GET", "/Tables").send(), 200, version, "feed");
        assert!(list.contains("<title type=\"text\">Tables</title>") && list.contains(&body), "{list}");
        let path = format!("/Tables('{name}')");
        request(client, version, "DELETE", &path).send().expect(204);
        refused(request(client, version, "DELETE", &path).send(), version, NOT_FOUND);
    }
}

fn an_inserted_entity_comes_back(client: &Client) {
    for version in all() {
        let t = client.table();
        let sent = sending(client, version, "POST", &t.set(), &(keys("p", "r") + "<d:A>x</d:A>")).send();
        assert_eq!(sent.need("Location"), client.url(&printed_entity_path(&t.name, "p", "r")), "{sent}");
        let etag = sent.need("ETag").to_owned();
        let entry = document(sent, 201, version, "entry");
        assert_eq!(properties(&entry), "<d:A>x</d:A>");
        assert!(entry.contains(&format!("m:etag=\"{}\"", etag.replace('"', "&quot;"))), "{entry}");
        assert_eq!(properties(&get(&t, version)), "<d:A>x</d:A>");
        let again = sending(client, version, "POST", &t.set(), &keys("p", "r")).send();
        refused(again, version, ENTITY_EXISTS);
        refused(request(client, version, "GET", &t.path("p", "none")).send(), version, NOT_FOUND);
    }
}

fn entries_have_the_recorded_layout(client: &Client) {
    let t = client.table();
    insert(&t, Some("2009-09-19"), "<d:A m:type=\"Edm.Int32\">5</d:A>");
    let etag = t.get("p", "r").need("ETag").to_owned();
    let time = timestamp_of(&etag);
    let entry = get(&t, Some("2009-09-19"));
    let (head, rest) = entry.split_once("<updated>").expect("a time");
    let (updated, rest) = rest.split_once("</updated>").expect("a time");
    assert!(updated.len() == 20 && updated.ends_with('Z'), "whole seconds: {updated}");
    let (base, name) = (client.url(""), &t.name);
    let address = format!("{name}(PartitionKey='p',RowKey='r')");
    assert!(head.starts_with(&format!("<entry xml:base=\"{base}/\" ")), "{head}");
    for part in [
        "xmlns:d=\"http://schemas.microsoft.com/ado/2007/08/dataservices\"".to_owned(),
        "xmlns:m=\"http://schemas.microsoft.com/ado/2007/08/dataservices/metadata\"".into(),
        "xmlns=\"http://www.w3.org/2005/Atom\"".into(),
        format!("m:etag=\"{}\"", etag.replace('"', "&quot;")),
    ] {
        assert!(head.contains(&part), "{part} in {head}");
    }
    assert!(head.ends_with(&format!("><id>{base}/{address}</id><title type=\"text\"></title>")), "{head}");
    let scheme = "http://schemas.microsoft.com/ado/2007/08/dataservices/scheme";
    let expected = format!(
        "<author><name /></author><link rel=\"edit\" title=\"{name}\" href=\"{address}\" />\
         <category term=\"{}.{name}\" scheme=\"{scheme}\" /><content type=\"application/xml\"><m:properties>\
         <d:PartitionKey>p</d:PartitionKey><d:RowKey>r</d:RowKey>\
         <d:Timestamp m:type=\"Edm.DateTime\">{time}</d:Timestamp><d:A m:type=\"Edm.Int32\">5</d:A>\
         </m:properties></content></entry>",
        client.account.name
    );
    assert_eq!(rest, expected);
}

fn feeds_have_the_recorded_layout(client: &Client) {
    let t = client.table();
    t.seed_rows("p", ["1", "2"]);
    let path = format!("/{}()", t.name);
    for version in all() {
        let feed = document(request(client, version, "GET", &path).send(), 200, version, "feed");
        let (base, name) = (client.url(""), &t.name);
        assert!(feed.starts_with(&format!("<feed xml:base=\"{base}/\" ")), "{feed}");
        let head = format!("><title type=\"text\">{name}</title><id>{base}/{name}</id><updated>");
        assert!(feed.contains(&head), "{feed}");
        assert!(feed.contains(&format!("<link rel=\"self\" title=\"{name}\" href=\"{name}\" />")), "{feed}");
        assert_eq!(feed.matches("<entry m:etag=\"W/&quot;datetime'").count(), 2, "{feed}");
        assert!(feed.ends_with("</entry></feed>"), "{feed}");
    }
    let empty = client.table();
    let answer = request(client, Some("2011-08-18"), "GET", &format!("/{}()", empty.name)).send();
    assert!(!document(answer, 200, Some("2011-08-18"), "feed").contains("<entry"));
}

const TYPES: &str = "<d:S>text</d:S><d:T m:type=\"Edm.String\">typed</d:T><d:E />\
    <d:I m:type=\"Edm.Int32\">-5</d:I><d:L m:type=\"Edm.Int64\">9007199254740993</d:L>\
    <d:D m:type=\"Edm.Double\">5</d:D><d:B m:type=\"Edm.Boolean\">true</d:B>\
    <d:F m:type=\"Edm.Boolean\">false</d:F><d:N m:type=\"Edm.Binary\">AQID</d:N>\
    <d:G m:type=\"Edm.Guid\">C9DA6455-213D-42C9-9A79-3E9149A57833</d:G>\
    <d:W m:type=\"Edm.DateTime\">2011-01-02T03:04:05.5000000Z</d:W>";

fn every_type_is_read(client: &Client) {
    for version in all() {
        let t = client.table();
        insert(&t, version, TYPES);
        let expected = json!({
            "S": "text", "T": "typed", "E": "", "I": -5, "L@odata.type": "Edm.Int64", "L": "9007199254740993",
            "D": 5.0, "B": true, "F": false, "N@odata.type": "Edm.Binary", "N": "AQID",
            "G@odata.type": "Edm.Guid", "G": "c9da6455-213d-42c9-9a79-3e9149a57833",
            "W@odata.type": "Edm.DateTime", "W": "2011-01-02T03:04:05.5Z",
        });
        assert_eq!(t.properties(), expected, "{version:?}");
    }
}

fn every_type_is_printed(client: &Client) {
    let t = client.table();
    insert(&t, Some("2011-08-18"), TYPES);
    for version in all() {
        let entry = get(&t, version);
        let found = properties(&entry);
        for part in [
            "<d:S>text</d:S>",
            "<d:T>typed</d:T>",
            "<d:I m:type=\"Edm.Int32\">-5</d:I>",
            "<d:L m:type=\"Edm.Int64\">9007199254740993</d:L>",
            "<d:D m:type=\"Edm.Double\">5",
            "<d:B m:type=\"Edm.Boolean\">true</d:B>",
            "<d:F m:type=\"Edm.Boolean\">false</d:F>",
            "<d:N m:type=\"Edm.Binary\">AQID</d:N>",
            "<d:G m:type=\"Edm.Guid\">c9da6455-213d-42c9-9a79-3e9149a57833</d:G>",
            "<d:W m:type=\"Edm.DateTime\">2011-01-02T03:04:05.5Z</d:W>",
        ] {
            assert!(found.contains(part), "{part} in {found}");
        }
        assert!(found.contains("<d:E></d:E>"), "{found}");
    }
}

fn special_doubles_are_spelled_as_in_xml(client: &Client) {
    let version = Some("2012-02-12");
    let t = client.table();
    let double = |name: &str, text: &str| format!("<d:{name} m:type=\"Edm.Double\">{text}</d:{name}>");
    let sent = double("A", "NaN") + &double("B", "INF") + &double("C", "-INF") + &double("D", "Infinity");
    let entry = insert(&t, version, &sent);
    let shown = double("A", "NaN") + &double("B", "INF") + &double("C", "-INF") + &double("D", "INF");
    assert_eq!(properties(&entry), shown);
    assert_eq!(t.properties()["C"], "-Infinity");
}

fn text_is_escaped_and_unescaped(client: &Client) {
    for version in [Some("2009-09-19"), Some("2014-02-14")] {
        let t = client.table();
        let sent = "<d:A>a&amp;b &lt;c&gt; &quot;d&quot; &apos;e&apos; &#65;&#x42; ü 😀</d:A><d:B><![CDATA[<&>]]></d:B>";
        insert(&t, version, sent);
        assert_eq!(t.properties(), json!({ "A": "a&b <c> \"d\" 'e' AB ü 😀", "B": "<&>" }));
        let entry = get(&t, version);
        assert!(properties(&entry).contains("<d:B>&lt;&amp;&gt;</d:B>"), "{entry}");
        let copy = client.table();
        let body = keys("p", "r") + properties(&entry);
        sending(client, version, "POST", &copy.set(), &body).send().expect(201);
        assert_eq!(copy.properties(), t.properties(), "what is printed reads back");
    }
}

fn white_space_around_text_is_kept(client: &Client) {
    let version = Some("2011-08-18");
    let t = client.table();
    let sent = "<d:A xml:space=\"preserve\">  x </d:A><d:B xml:space=\"preserve\"> </d:B><d:C>in side</d:C>";
    let entry = insert(&t, version, sent);
    assert_eq!(t.properties(), json!({ "A": "  x ", "B": " ", "C": "in side" }));
    assert_eq!(properties(&entry), sent);
}

fn null_and_missing_types_are_understood(client: &Client) {
    for version in [None, Some("2009-09-19"), Some("2013-08-15")] {
        let t = client.table();
        let sent =
            "<d:A m:null=\"true\" /><d:B m:type=\"Edm.Int32\" m:null=\"true\" /><d:C>5</d:C><d:D></d:D>";
        insert(&t, version, sent);
        assert_eq!(t.properties(), json!({ "C": "5", "D": "" }), "{version:?}");
    }
}

/// The SDK for PHP sends them so.
fn booleans_may_be_digits(client: &Client) {
    for version in [None, Some("2011-08-18"), Some("2015-04-05")] {
        let t = client.table();
        let sent = "<d:A m:type=\"Edm.Boolean\">1</d:A><d:B m:type=\"Edm.Boolean\"> 0 </d:B>\
                    <d:C m:null=\"1\">x</d:C><d:D m:null=\" true \"/><d:E m:null=\"0\">e</d:E>";
        insert(&t, version, sent);
        assert_eq!(t.properties(), json!({ "A": true, "B": false, "E": "e" }), "{version:?}");
    }
}

fn a_null_that_is_no_boolean_is_refused(client: &Client) {
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    let version = Some("2011-08-18");
    for null in ["True", "yes", "", "2"] {
        let body = format!("<d:A m:null=\"{null}\" />");
        let answer = sending(client, version, "PUT", &t.path("p", "r"), &body).send();
        refused(answer, version, BAD_BODY);
    }
    assert_eq!(t.properties(), json!({ "A": 1 }));
}

fn what_xml_cannot_hold_is_printed_as_references(client: &Client) {
    let t = client.table();
    t.seed_one(json!({ "A": "\u{fffe}a\u{ffff}\u{1}\u{fffd}" }));
    for version in [Some("2009-09-19"), Some("2014-02-14")] {
        let entry = get(&t, version);
        assert!(entry.contains("<d:A>&#xFFFE;a&#xFFFF;&#x1;\u{fffd}</d:A>"), "{entry}");
    }
}

fn text_in_another_encoding_is_refused(client: &Client) {
    let t = client.table();
    let version = Some("2014-02-14");
    let path = t.path("p", "r");
    let put = |content_type: &str, declaration: &str| {
        let body = entry("<d:A>Ã©</d:A>");
        let (_, entry) = body.split_once("?>").expect("a declaration");
        let request = request(client, version, "PUT", &path).header("Content-Type", content_type);
        request.body(format!("{declaration}{entry}")).send()
    };
    let atom = "application/atom+xml";
    refused(put(atom, "<?xml version=\"1.0\" encoding=\"iso-8859-1\"?>"), version, BAD_BODY);
    refused(put("application/atom+xml;charset=iso-8859-1", ""), version, MEDIA_TYPE);
    t.on("PUT", "p", "r")
        .header("Content-Type", "application/json; charset=windows-1252")
        .body("{\"A\":\"Ã©\"}")
        .send()
        .refused(MEDIA_TYPE);
    assert_eq!(t.count(), 0);
    for declaration in ["", "<?xml version=\"1.0\"?>", "<?xml version=\"1.0\" encoding=\"UTF-8\"?>"] {
        for content_type in
            [atom, "application/atom+xml; charset=\"UTF-8\"", "application/xml;charset=us-ascii"]
        {
            put(content_type, declaration).expect_no_content();
            assert_eq!(t.properties(), json!({ "A": "Ã©" }), "{content_type} {declaration}");
        }
    }
}

fn entities_are_updated_and_merged_under_a_condition(client: &Client) {
    for version in all() {
        let t = client.table();
        insert(&t, version, "<d:A>1</d:A><d:B>2</d:B>");
        let path = t.path("p", "r");
        let old = t.get("p", "r").need("ETag").to_owned();
        let send = |verb: &str, body: &str, etag: &str| {
            sending(client, version, verb, &path, body).if_match(Some(etag)).send()
        };
        let merged = send("MERGE", "<d:B>3</d:B>", &old).expect_no_content();
        assert_eq!(t.properties(), json!({ "A": "1", "B": "3" }), "{version:?}");
        refused(send("MERGE", "<d:B>4</d:B>", &old), version, CONDITION_FAILED);
        refused(send("PUT", "<d:B>4</d:B>", &old), version, CONDITION_FAILED);
        send("PUT", &(keys("p", "r") + "<d:C>5</d:C>"), merged.need("ETag")).expect_no_content();
        assert_eq!(t.properties(), json!({ "C": "5" }), "{version:?}");
        send("MERGE", "", "*").expect_no_content();
        let gone = sending(client, version, "PUT", &t.path("p", "none"), "").if_match(Some("*"));
        refused(gone.send(), version, NOT_FOUND);
    }
}

fn upserts_work_since_2011(client: &Client) {
    for version in all().filter(|version| *version != Some("2009-09-19")) {
        let t = client.table();
        for verb in ["PUT", "MERGE"] {
            let path = t.path("p", verb);
            let answer = sending(client, version, verb, &path, "<d:A>1</d:A>").send().expect_no_content();
            timestamp_of(answer.need("ETag"));
            sending(client, version, verb, &path, "<d:B>2</d:B>").send().expect(204);
        }
        assert_eq!(custom(t.entity("p", "PUT")), json!({ "B": "2" }));
        assert_eq!(custom(t.entity("p", "MERGE")), json!({ "A": "1", "B": "2" }));
    }
}

fn before_2011_every_update_needs_a_condition(client: &Client) {
    let t = client.table();
    for version in ["2009-04-14", "2009-09-19", "2011-08-17"] {
        for verb in ["PUT", "MERGE"] {
            let answer = sending(client, Some(version), verb, &t.path("p", "r"), "<d:A>1</d:A>").send();
            assert_eq!(answer.status, 400, "{version} {answer}");
        }
    }
    assert_eq!(t.count(), 0);
}

fn deleting_needs_a_condition_in_every_version(client: &Client) {
    for version in all() {
        let t = client.table();
        t.seed_one(json!({}));
        let delete = request(client, version, "DELETE", &t.path("p", "r"));
        assert_eq!(delete.clone().send().status, 400, "{version:?}");
        delete.clone().if_match(Some("*")).send().expect_no_content();
        refused(delete.if_match(Some("*")).send(), version, NOT_FOUND);
    }
}

fn queries_filter_and_page(client: &Client) {
    let t = client.table();
    for row in ["1", "2", "3"] {
        t.seed(with_keys("p", row, json!({ "A": row.parse::<i32>().expect("a number") })));
    }
    for version in all() {
        let query =
            |options: &str| request(client, version, "GET", &format!("/{}(){options}", t.name)).send();
        let found = document(query("?$filter=A%20ge%202"), 200, version, "feed");
        assert_eq!(found.matches("<entry").count(), 2, "{found}");
        let page = query("?$top=2");
        let next = page.need("x-ms-continuation-NextPartitionKey").to_owned();
        let row = page.need("x-ms-continuation-NextRowKey").to_owned();
        assert_eq!(document(page, 200, version, "feed").matches("<entry").count(), 2);
        let rest = query(&format!("?$top=2&NextPartitionKey={}&NextRowKey={}", escape(&next), escape(&row)));
        assert_eq!(rest.header("x-ms-continuation-NextPartitionKey"), None);
        let rest = document(rest, 200, version, "feed");
        assert!(rest.contains("<d:RowKey>3</d:RowKey>") && rest.matches("<entry").count() == 1, "{rest}");
    }
}

fn selected_properties_are_printed_alone(client: &Client) {
    let t = client.table();
    t.seed_one(json!({ "A": 1, "B": 2 }));
    for version in [Some("2011-08-18"), Some("2014-02-14")] {
        let answer = request(client, version, "GET", &format!("/{}()?$select=A,None", t.name)).send();
        let feed = document(answer, 200, version, "feed");
        let selected =
            "<m:properties><d:A m:type=\"Edm.Int32\">1</d:A><d:None m:null=\"true\" /></m:properties>";
        assert!(feed.contains(selected), "{feed}");
    }
}

fn properties_are_in_ordinal_order_after_an_update(client: &Client) {
    for version in all() {
        let t = client.table();
        insert(&t, version, "<d:b>1</d:b><d:_>2</d:_>");
        let sent = "<d:aa>3</d:aa><d:B>4</d:B>";
        sending(client, version, "MERGE", &t.path("p", "r"), sent).header("If-Match", "*").send().expect(204);
        let merged = "<d:B>4</d:B><d:_>2</d:_><d:aa>3</d:aa><d:b>1</d:b>";
        assert_eq!(properties(&get(&t, version)), merged);
        let feed = request(client, version, "GET", &format!("/{}()", t.name)).send();
        assert_eq!(properties(&document(feed, 200, version, "feed")), merged);
    }
}

fn keys_with_special_characters_are_addressed(client: &Client) {
    let version = Some("2011-08-18");
    let t = client.table();
    for row in ["it's", "a&amp;b", "ü &lt;x&gt;", "100%", ""] {
        sending(client, version, "POST", &t.set(), &keys("p", row)).send().expect(201);
        let plain = row.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
        let answer = request(client, version, "GET", &t.path("p", &plain)).send();
        let entry = document(answer, 200, version, "entry");
        let element = format!("<d:RowKey>{row}</d:RowKey>");
        assert!(entry.contains(&element) || row.is_empty(), "{entry}");
    }
}
