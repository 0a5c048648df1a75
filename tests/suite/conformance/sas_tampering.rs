//! Every signed field of a signature, in every generation of signatures:
//! changed, left out or added, it makes the signature void (protocol §10.5,
//! §10.6). Each change alone would leave the request permitted.

use serde_json::json;

use crate::support::*;

cases! {
    no_field_of_a_table_signature_can_be_changed, no_field_of_an_account_signature_can_be_changed,
    no_field_can_be_added_to_a_table_signature, no_field_can_be_added_to_an_account_signature,
    no_policy_can_be_exchanged, no_other_account_is_opened,
}

/// Versions of every generation of table signatures; neighbours within one sign
/// the same fields.
const TABLE_VERSIONS: [(&str, &str); 5] = [
    ("2012-02-12", "2013-08-15"),
    ("2014-02-14", "2013-08-15"),
    ("2015-02-21", "2015-03-01"),
    ("2015-04-05", "2019-02-02"),
    ("2020-12-06", "2025-01-05"),
];
const ACCOUNT_VERSIONS: [(&str, &str); 4] = [
    ("2015-04-05", "2019-02-02"),
    ("2019-02-02", "2018-03-28"),
    ("2020-12-06", "2025-01-05"),
    ("2025-01-05", "2020-12-06"),
];

/// A change that alone would leave a read permitted; no value means without.
type Change = (&'static str, Option<&'static str>);

const TABLE_CHANGES: [Change; 16] = [
    ("sp", Some("raud")),
    ("sp", Some("ra")),
    ("st", Some("2020-01-02")),
    ("st", Some("2020-01-01T00:00:00Z")),
    ("st", None),
    ("se", Some("2091-01-01")),
    ("se", Some("2090-01-01T00:00:00Z")),
    ("spk", Some("o")),
    ("spk", Some("")),
    ("srk", Some("0")),
    ("srk", None),
    ("epk", Some("q")),
    ("erk", Some("zz")),
    ("erk", None),
    ("sip", None),
    ("spr", None),
];

const ACCOUNT_CHANGES: [Change; 14] = [
    ("sp", Some("rwdlacu")),
    ("sp", Some("rl")),
    ("ss", Some("bqtf")),
    ("ss", Some("bt")),
    ("srt", Some("sco")),
    ("srt", Some("co")),
    ("st", Some("2020-01-02")),
    ("st", None),
    ("se", Some("2091-01-01")),
    ("sip", Some("127.0.0.1")),
    ("sip", None),
    ("spr", Some("https,http")),
    ("spr", None),
    ("ses", None),
];

fn seeded(client: &Client) -> Table<'_> {
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    t
}

/// Reads the entity with the fields of one signature and the signature of
/// another.
fn read(t: &Table, shown: &Sas, signed: &Sas) -> Answer {
    let query = shown.query_signed(&signed.signature(&t.client.account));
    let bearer = t.client.bearing(&query);
    bearer.request("GET", &t.path("p", "r")).version("2019-02-02").send()
}

/// Demands that a change would be permitted if it were signed, and is refused
/// where it is not.
#[track_caller]
fn void(t: &Table, signed: &Sas, changed: &Sas, what: &str) {
    assert_eq!(read(t, changed, changed).status, 200, "{what} alone");
    let answer = read(t, changed, signed);
    assert_eq!(answer.status, 403, "{what} {answer}");
    answer.turned_away(NOT_AUTHENTICATED);
}

fn change(sas: &Sas, (name, value): Change) -> Sas {
    match value {
        Some(value) => sas.clone().set(name, value),
        None => sas.clone().without(name),
    }
}

fn table_signature(t: &Table, version: &str) -> Sas {
    let sas = Sas::table(&t.name, "r").set("sv", version).set("st", "2020-01-01").set("se", "2090-01-01");
    let sas = sas.range((Some("p"), Some("a")), (Some("p"), Some("z")));
    if version < "2015-04-05" {
        return sas;
    }
    sas.set("spr", "https,http").set("sip", "0.0.0.0-255.255.255.255")
}

fn account_signature(version: &str) -> Sas {
    let sas = Sas::account("o", "r").set("sv", version).set("st", "2020-01-01").set("se", "2090-01-01");
    let sas = sas.set("spr", "https,http").set("sip", "0.0.0.0-255.255.255.255");
    if version < "2020-12-06" { sas } else { sas.set("ses", "scope") }
}

fn no_field_of_a_table_signature_can_be_changed(client: &Client) {
    let t = seeded(client);
    for (version, neighbour) in TABLE_VERSIONS {
        let sas = table_signature(&t, version);
        read(&t, &sas, &sas).expect(200);
        for field in TABLE_CHANGES {
            if version < "2015-04-05" && matches!(field.0, "sip" | "spr") {
                continue;
            }
            void(&t, &sas, &change(&sas, field), &format!("{version} {field:?}"));
        }
        void(&t, &sas, &sas.clone().set("sv", neighbour), &format!("{version} as {neighbour}"));
        // The end of the range goes with its row.
        let endless = sas.clone().without("epk").without("erk");
        void(&t, &sas, &endless, &format!("{version} without an end"));
        let beginless = sas.clone().without("spk").without("srk");
        void(&t, &sas, &beginless, &format!("{version} without a start"));
        // What names another table is no signature for this one.
        let other = seeded(client);
        let elsewhere = table_signature(&other, version);
        void(&other, &sas, &elsewhere, &format!("{version} for another table"));
    }
}

fn no_field_of_an_account_signature_can_be_changed(client: &Client) {
    let t = seeded(client);
    for (version, neighbour) in ACCOUNT_VERSIONS {
        let sas = account_signature(version);
        read(&t, &sas, &sas).expect(200);
        for field in ACCOUNT_CHANGES {
            let changed = change(&sas, field);
            if changed.query_signed("") == sas.query_signed("") {
                continue;
            }
            void(&t, &sas, &changed, &format!("{version} {field:?}"));
        }
        void(
            &t,
            &sas,
            &sas.clone().set("sv", neighbour).without("ses"),
            &format!("{version} as {neighbour}"),
        );
    }
}

fn no_field_can_be_added_to_a_table_signature(client: &Client) {
    let t = seeded(client);
    for (version, _) in TABLE_VERSIONS {
        let bare = Sas::table(&t.name, "r").set("sv", version).set("se", "2090-01-01");
        for (name, value) in
            [("st", "2020-01-01"), ("spk", "p"), ("epk", "p"), ("spr", "https,http"), ("sip", "127.0.0.1")]
        {
            if version < "2015-04-05" && matches!(name, "sip" | "spr") {
                continue;
            }
            void(&t, &bare, &bare.clone().set(name, value), &format!("{version} with {name}"));
        }
        for (partition, row) in [("spk", "srk"), ("epk", "erk")] {
            let ranged = bare.clone().set(partition, "p");
            void(&t, &ranged, &ranged.clone().set(row, "r"), &format!("{version} with {row}"));
        }
    }
}

fn no_field_can_be_added_to_an_account_signature(client: &Client) {
    let t = seeded(client);
    for (version, _) in ACCOUNT_VERSIONS {
        let bare = Sas::account("o", "r").set("sv", version).set("se", "2090-01-01");
        for (name, value) in
            [("st", "2020-01-01"), ("spr", "https,http"), ("sip", "127.0.0.1"), ("ses", "scope")]
        {
            let with = bare.clone().set(name, value);
            if version < "2020-12-06" && name == "ses" {
                // It is not signed there, so it is not taken there.
                read(&t, &with, &with).turned_away(NOT_AUTHENTICATED);
                continue;
            }
            void(&t, &bare, &with, &format!("{version} with {name}"));
        }
    }
}

fn no_policy_can_be_exchanged(client: &Client) {
    let t = seeded(client);
    let policy = |id: &str| {
        format!(
            "<SignedIdentifier><Id>{id}</Id><AccessPolicy><Start>2020-01-01</Start><Expiry>2090-01-01</Expiry>\
             <Permission>r</Permission></AccessPolicy></SignedIdentifier>"
        )
    };
    let both = format!("<SignedIdentifiers>{}{}</SignedIdentifiers>", policy("one"), policy("two"));
    let request = client.request("PUT", &format!("{}?comp=acl", t.set()));
    request.header("Accept", "application/xml").body(both).send().expect(204);
    for (version, _) in TABLE_VERSIONS {
        let sas = Sas::table(&t.name, "").set("sv", version).with_policy("one");
        read(&t, &sas, &sas).expect(200);
        void(&t, &sas, &sas.clone().set("si", "two"), version);
        let own = Sas::table(&t.name, "r").set("sv", version);
        void(&t, &own, &sas, version);
        void(&t, &sas, &own, version);
    }
}

fn no_other_account_is_opened(client: &Client) {
    let Some(neighbour) = client.neighbour() else { return };
    let t = seeded(client);
    // The account's name is signed too, so one key for two accounts opens one.
    for (version, _) in ACCOUNT_VERSIONS {
        let sas = account_signature(version);
        let mut other = client.account.clone();
        other.name = neighbour.account.name.clone();
        let query = sas.query(&other);
        let answer = client.bearing(&query).request("GET", &t.path("p", "r")).send();
        answer.turned_away(NOT_AUTHENTICATED);
    }
    for (version, _) in TABLE_VERSIONS {
        let mut other = client.account.clone();
        other.name = neighbour.account.name.clone();
        let query = table_signature(&t, version).query(&other);
        client.bearing(&query).request("GET", &t.path("p", "r")).send().turned_away(NOT_AUTHENTICATED);
    }
}
