//! Requests of programs and of public reports, with the headers that they have there and no others.

use serde_json::json;

use crate::support::client::Request;
use crate::support::*;

cases! {
    the_sdk_for_ruby_sets_and_gets_policies, the_sdk_for_php_begins_a_page_at_keys,
    the_sdk_for_php_sets_no_service_properties, a_poller_sends_the_etag_that_it_has,
    the_client_for_haskell_sends_every_option, the_sdk_for_cpp_sets_policies_with_a_sas_of_the_table,
}

/// The headers that a request of the suite has by itself.
const OF_THE_SUITE: [&str; 4] = ["x-ms-version", "DataServiceVersion", "Accept", "x-ms-client-request-id"];

/// A signed request with these headers, in this order.
fn sent<'a>(client: &'a Client, verb: &str, path: &str, headers: &[(&str, &str)]) -> Request<'a> {
    let bare = OF_THE_SUITE.iter().fold(client.request(verb, path), |request, name| request.without(name));
    headers.iter().fold(bare, |request, (name, value)| request.also(name, value))
}

fn the_sdk_for_ruby_sets_and_gets_policies(client: &Client) {
    const RUBY: [(&str, &str); 6] = [
        ("Accept-Encoding", "gzip;q=1.0,deflate;q=0.6,identity;q=0.3"),
        ("Accept", "*/*"),
        ("User-Agent", "Azure-Storage/2.0.4 (Ruby 2.7.8-p225; Linux linux)"),
        ("x-ms-version", "2012-02-12"),
        ("DataServiceVersion", "1.0;NetFx"),
        ("MaxDataServiceVersion", "2.0;NetFx"),
    ];
    let t = client.table();
    let path = format!("{}?comp=acl", t.set());
    let body = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<SignedIdentifiers>\n  <SignedIdentifier>\n    \
                <Id>a</Id>\n    <AccessPolicy>\n      <Start>2009-09-28T08:49:37.0000000Z</Start>\n      \
                <Expiry>2009-09-29T08:49:37.0000000Z</Expiry>\n      <Permission>raud</Permission>\n    \
                </AccessPolicy>\n  </SignedIdentifier>\n</SignedIdentifiers>\n";
    let put = sent(client, "PUT", &path, &RUBY).header("Content-Type", "application/atom+xml; charset=utf-8");
    put.body(body).send().expect(204);
    let answer = sent(client, "GET", &path, &RUBY).send().expect(200);
    assert!(answer.text().contains("<Permission>raud</Permission>"), "{answer}");
}

/// What the SDK for PHP sends with every request.
const PHP: [(&str, &str); 6] = [
    ("User-Agent", "Azure-Storage/1.3.0 (PHP 7.4.33)"),
    ("x-ms-version", "2016-05-31"),
    ("MaxDataServiceVersion", "3.0;NetFx"),
    ("DataServiceVersion", "3.0"),
    ("Accept", "application/json;odata=minimalmetadata"),
    ("Accept-Charset", "utf-8"),
];

fn the_sdk_for_php_begins_a_page_at_keys(client: &Client) {
    let t = client.table();
    for partition in ["a", "b"] {
        t.seed_rows(partition, ["1", "2", "3"]);
    }
    let found = |options: &str| {
        let path = format!("/{}?{options}", t.name);
        keys_shown(&rows(sent(client, "GET", &path, &PHP).send().expect(200).json()))
    };
    assert_eq!(found("NextPartitionKey=a&NextRowKey=2"), "a/2 a/3 b/1 b/2 b/3");
    assert_eq!(found("NextPartitionKey=a&NextRowKey=%2B&$top=2"), "a/1 a/2");
    assert_eq!(found("NextPartitionKey=b&NextRowKey="), "b/1 b/2 b/3");
    assert_eq!(found("NextPartitionKey=b"), "b/1 b/2 b/3");
    assert_eq!(found("NextRowKey=2&$top=1"), "a/1");
}

fn the_sdk_for_php_sets_no_service_properties(client: &Client) {
    let put = sent(client, "PUT", "/?restype=service&comp=properties", &PHP);
    let put = put.header("Content-Type", "application/xml");
    let body = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<StorageServiceProperties/>\n";
    put.body(body).send().refused_in_xml(XML_DOCUMENT);
}

fn a_poller_sends_the_etag_that_it_has(client: &Client) {
    let t = client.table();
    let etag = t.seed_one(json!({ "A": 1 }));
    for version in ["2011-08-18", "2014-02-14", "2015-04-05", "2019-02-02", "2020-12-06"] {
        let get = |etag: &str| {
            let accept = if version < "2013-08-15" { "application/atom+xml" } else { "application/json" };
            let headers = [("x-ms-version", version), ("Accept", accept), ("If-None-Match", etag)];
            sent(client, "GET", &t.path("p", "r"), &headers).send()
        };
        let answer = get(&etag).expect(304);
        assert_eq!((answer.need("ETag"), answer.text()), (etag.as_str(), ""), "{version}");
        get("W/\"datetime'2012-06-15T22%3A51%3A44.9662825Z'\"").expect(200);
    }
}

fn the_client_for_haskell_sends_every_option(client: &Client) {
    let t = client.table();
    t.seed_rows("p", ["1", "2"]);
    let headers = [("x-ms-version", "2013-08-15"), ("Accept", "application/json")];
    let path = format!("/{}()?$filter=&$top=&$select=", t.name);
    assert_eq!(row_keys(&rows(sent(client, "GET", &path, &headers).send().expect(200).json())), "1,2");
}

fn the_sdk_for_cpp_sets_policies_with_a_sas_of_the_table(client: &Client) {
    let t = client.table();
    let bearer = Sas::table(&t.name, "raud").of(client);
    let headers = [("Accept", "application/xml"), ("x-ms-version", "2019-02-02")];
    let put = sent(&bearer, "PUT", &format!("{}?comp=acl", t.set()), &headers);
    put.body("<SignedIdentifiers/>").send().refused_in_xml(OUTSIDE);
    sent(&bearer, "GET", &format!("{}?comp=acl", t.set()), &headers).send().refused_in_xml(OUTSIDE);
    let headers = [("Accept", "application/json;odata=fullmetadata"), ("x-ms-version", "2019-02-02")];
    sent(&bearer, "GET", "/Tables", &headers).send().refused(OUTSIDE);
    // A letter that is missing is another matter.
    let blind = Sas::table(&t.name, "a").of(client);
    sent(&blind, "GET", &t.set(), &headers).send().refused(PERMISSION);
}
