//! What signatures are made of: tampering, restrictions, fields that clash
//! (protocol §10.5, §10.6).

use serde_json::json;

use crate::support::*;

cases! {
    a_signature_that_is_none_is_refused, encrypted_connections_may_be_demanded,
    the_source_address_may_be_restricted, fields_that_have_no_place_are_refused,
    fields_given_twice_are_refused, other_parameters_are_not_signed,
    a_flaw_of_another_parameter_is_told_to_whoever_signed, a_signature_does_not_help_a_bad_key,
    refusals_speak_the_language_of_the_client,
}

/// A table with an entity and everything that a signature can have.
fn full<'a>(client: &'a Client) -> (Table<'a>, Sas) {
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    let sas = Sas::table(&t.name, "raud").set("st", "2020-01-01").set("se", "2090-01-01");
    let sas = sas.set("spr", "https,http").set("sip", "0.0.0.0-255.255.255.255");
    let sas = sas.range((Some("p"), Some("a")), (Some("p"), Some("z")));
    (t, sas)
}

/// Reads the entity under this query.
fn read(client: &Client, t: &Table, query: &str) -> Answer {
    Table::new(&client.bearing(query), &t.name).get("p", "r")
}

fn a_signature_that_is_none_is_refused(client: &Client) {
    let (t, sas) = full(client);
    let right = sas.signature(&client.account);
    let short = &right[..right.len() - 4];
    let zeros = format!("{}=", "A".repeat(43));
    // The last letter of base64 has bits that mean nothing: the next letter differs in them alone.
    let aliased = format!("{}{}=", &right[..42], char::from(right.as_bytes()[42] + 1));
    for signature in ["", "x", "====", "AAAA", short, &zeros, &right.to_lowercase(), &aliased] {
        read(client, &t, &sas.query_signed(signature)).turned_away(NOT_AUTHENTICATED);
    }
}

fn encrypted_connections_may_be_demanded(client: &Client) {
    let (t, sas) = full(client);
    let with = |spr: &str| read(client, &t, &sas.clone().set("spr", spr).query(&client.account));
    assert_eq!(with("https").status, 403);
    assert!(with("https").text().contains(WRONG_PROTOCOL.1));
    with("https,http").expect(200);
    for spr in ["http", "ftp", "https,", "http,https"] {
        with(spr).turned_away(NOT_AUTHENTICATED);
    }
}

fn the_source_address_may_be_restricted(client: &Client) {
    let (t, sas) = full(client);
    let with = |sip: &str| read(client, &t, &sas.clone().set("sip", sip).query(&client.account));
    for sip in ["127.0.0.1", "127.0.0.1-127.0.0.1", "127.0.0.0-127.0.0.255"] {
        with(sip).expect(200);
    }
    for sip in ["127.0.0.2", "10.0.0.1", "127.0.0.2-127.0.0.9", "127.0.0.9-127.0.0.0", "126.0.0.0-127.0.0.0"]
    {
        let answer = with(sip).expect(403);
        assert!(answer.text().contains("AuthorizationSourceIPMismatch"), "{answer}");
        assert!(answer.text().contains("using this source IP 127.0.0.1."), "{answer}");
    }
    for sip in ["localhost", "127.0.0", "127.0.0.1-", "-127.0.0.1", "127.0.0.1/8", "1-2-3"] {
        with(sip).turned_away(NOT_AUTHENTICATED);
    }
}

fn fields_that_have_no_place_are_refused(client: &Client) {
    let (t, sas) = full(client);
    let (table, account) = (Sas::table(&t.name, "r"), Sas::account("o", "r"));
    for (sas, name, values) in [
        // Fields of signatures for accounts and for tables.
        (&sas, "ss", &["t"][..]),
        (&sas, "srt", &["sco"]),
        (&sas, "ses", &["x"]),
        (&account, "tn", &[t.name.as_str()]),
        (&account, "spk", &["p"]),
        (&account, "epk", &["p"]),
        (&account, "si", &["id"]),
        // Rows without their partition.
        (&table, "srk", &["r"]),
        (&table, "erk", &["r"]),
        // Versions without such signatures, or that do not sign the restriction.
        (&table, "sv", &["2009-09-19", "2011-08-18", "x", "2019", "2019-02-30", ""]),
        (&account, "sv", &["2014-02-14"]),
        (&table.clone().set("sv", "2014-02-14"), "spr", &["https,http"]),
        (&table.clone().set("sv", "2014-02-14"), "sip", &["127.0.0.1"]),
    ] {
        for value in values {
            let query = sas.clone().set(name, value).query(&client.account);
            read(client, &t, &query).turned_away(NOT_AUTHENTICATED);
        }
    }
    let neither = sas.clone().without("tn").query(&client.account);
    read(client, &t, &neither).turned_away(NOT_AUTHENTICATED);
    // Those of other services, and those of another kind, beside what is signed.
    let query = sas.query(&client.account);
    let others =
        ["sr", "sdd", "rscc", "rscd", "skoid", "sktid", "skt", "ske", "sks", "skv"].map(|name| (name, "x"));
    for (name, value) in others.into_iter().chain([("ss", "t"), ("srt", "sco"), ("ses", "x")]) {
        read(client, &t, &format!("{query}&{name}={value}")).turned_away(NOT_AUTHENTICATED);
    }
}

fn fields_given_twice_are_refused(client: &Client) {
    let (t, sas) = full(client);
    let query = sas.query(&client.account);
    for pair in query.split('&') {
        for twice in [format!("{query}&{pair}"), format!("{pair}&{query}")] {
            read(client, &t, &twice).turned_away(NOT_AUTHENTICATED);
        }
    }
    for other in ["sp=raud", "se=2099-01-01", "tn=other", "spk=", "sig=AAAA"] {
        read(client, &t, &format!("{query}&{other}")).turned_away(NOT_AUTHENTICATED);
    }
}

fn other_parameters_are_not_signed(client: &Client) {
    let (t, sas) = full(client);
    let there = client.bearing(&sas.query(&client.account));
    let there = Table::new(&there, &t.name);
    there.query("?$filter=A%20eq%201&$top=1&timeout=20&other=1").expect(200);
}

fn a_flaw_of_another_parameter_is_told_to_whoever_signed(client: &Client) {
    let (t, sas) = full(client);
    let there = client.bearing(&sas.query(&client.account));
    let there = Table::new(&there, &t.name);
    for (query, refusal) in [
        ("?$orderby=x", NOT_IMPLEMENTED),
        ("?$unknown=1", INVALID_INPUT),
        ("?$top=1&$top=2", INVALID_INPUT),
        ("?timeout=abc", QUERY_VALUE),
        ("?a=%zz", QUERY_VALUE),
    ] {
        there.query(query).refused(refusal);
    }
    let unsigned = Table::new(client, &t.name);
    unsigned
        .client
        .request("GET", &format!("/{}()?$orderby=x", t.name))
        .auth(Auth::None)
        .send()
        .turned_away(NOT_AUTHENTICATED);
}

fn a_signature_does_not_help_a_bad_key(client: &Client) {
    let (t, sas) = full(client);
    let bearer = sas.of(client);
    let bad = Auth::Header(format!("SharedKey {}:AAAA", client.account.name));
    bearer.request("GET", &t.path("p", "r")).auth(bad).send().turned_away(NOT_AUTHENTICATED);
}

fn refusals_speak_the_language_of_the_client(client: &Client) {
    let (t, sas) = full(client);
    let wrong = client.bearing(&sas.query_signed("AAAA"));
    let get = |client: &Client, accept: &str| {
        client.request("GET", &t.path("p", "r")).header("Accept", accept).send()
    };
    let answer = get(&wrong, "application/xml").turned_away(NOT_AUTHENTICATED);
    assert_eq!(answer.reason, NOT_AUTHENTICATED.2, "{answer}");
    get(&wrong, "application/json;odata=nometadata").turned_away(NOT_AUTHENTICATED);
    // What the signature does not permit is found out by the table layer.
    let blind = sas.set("sp", "a").of(client);
    for level in ["nometadata", "fullmetadata"] {
        let answer = blind.request("GET", &t.path("p", "r")).level(level).send().refused(PERMISSION);
        assert_eq!(answer.reason, "Forbidden", "{answer}");
    }
}
