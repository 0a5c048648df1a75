//! `x-ms-version` as far as JSON is concerned (protocol §12).

use crate::support::*;
use serde_json::json;

cases! {
    every_version_from_2013_on_is_accepted_and_echoed, errors_echo_the_version,
    malformed_versions_and_those_before_the_first_are_refused, no_version_with_json_is_the_newest_behaviour,
    data_service_versions_do_not_matter_to_json, the_version_does_not_change_what_was_stored,
    minimal_metadata_has_etags_since_2015_04_05,
}

fn every_version_from_2013_on_is_accepted_and_echoed(client: &Client) {
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    for version in [
        "2013-08-15",
        "2014-02-14",
        "2015-02-21",
        "2015-04-05",
        "2015-07-08",
        "2015-12-11",
        "2016-05-31",
        "2017-04-17",
        "2017-07-29",
        "2017-11-09",
        "2018-03-28",
        "2018-11-09",
        "2019-02-02",
        "2019-07-07",
        "2020-12-06",
        "2021-12-02",
        "2024-08-04",
        "2026-06-06",
        // Nobody has heard of these.
        "2013-12-31",
        "9999-12-31",
    ] {
        let answer = t.on("GET", "p", "r").version(version).send().expect(200);
        assert_eq!(answer.need("x-ms-version"), version);
        assert_eq!(custom(answer.json()), json!({ "A": 1 }), "{version}");
    }
}

fn errors_echo_the_version(client: &Client) {
    let t = client.table();
    let answer = t.on("GET", "p", "gone").version("2017-04-17").send().refused(NOT_FOUND);
    assert_eq!(answer.need("x-ms-version"), "2017-04-17");
}

fn malformed_versions_and_those_before_the_first_are_refused(client: &Client) {
    let t = client.table();
    let malformed = ["x", "2019", "2019-2-2", "2019-13-01", "2019-02-30", "19-02-02", "2019-02-02x"];
    let early = ["2009-04-13", "2008-10-27", "0001-01-01"];
    for version in malformed.into_iter().chain(early).chain(["2019/02/02", "-", "latest"]) {
        t.client.request("GET", &t.set()).version(version).send().is_no_version();
    }
}

fn no_version_with_json_is_the_newest_behaviour(client: &Client) {
    // UNVERIFIED 17
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    let answer = t.on("GET", "p", "r").without("x-ms-version").send();
    assert_eq!(custom(answer.expect_json()), json!({ "A": 1 }));
    t.on("MERGE", "p", "r").json(&json!({ "B": 2 })).without("x-ms-version").send().expect(204);
}

fn data_service_versions_do_not_matter_to_json(client: &Client) {
    let t = client.table();
    t.seed_one(json!({}));
    for version in ["3.0", "3.0;", "3.0;NetFx"] {
        let request = t.on("GET", "p", "r").header("DataServiceVersion", version);
        request.header("MaxDataServiceVersion", version).send().expect(200);
    }
    t.on("GET", "p", "r").without("DataServiceVersion").send().expect(200);
}

fn the_version_does_not_change_what_was_stored(client: &Client) {
    let t = client.table();
    let request = t.inserting(&with_keys("p", "r", json!({ "L@odata.type": "Edm.Int64", "L": "5" })));
    request.version("2013-08-15").send().expect(201);
    let texts = ["2015-04-05", "2019-02-02", "2026-06-06"]
        .map(|version| t.on("GET", "p", "r").version(version).send().expect(200).text().to_owned());
    assert!(texts.windows(2).all(|w| w[0] == w[1]), "{texts:?}");
}

fn minimal_metadata_has_etags_since_2015_04_05(client: &Client) {
    let t = client.table();
    for (version, has_etag) in [("2013-08-15", false), ("2015-02-21", false), ("2015-04-05", true)] {
        let row = with_keys("p", version, json!({ "A": 1 }));
        let made = t.inserting(&row).version(version).send().expect(201).json();
        let read = t.on("GET", "p", version).version(version).send().expect_json();
        let found = t.client.request("GET", &format!("{}()", t.set())).version(version).send().expect_json();
        for entity in [&made, &read, &rows(found)[0]] {
            assert_eq!(entity.get("odata.etag").is_some(), has_etag, "{version} {entity}");
            assert!(entity.get("Timestamp").is_some(), "{entity}");
        }
        t.delete("p", version, Some("*")).expect(204);
    }
}
