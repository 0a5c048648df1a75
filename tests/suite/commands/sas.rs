//! `rowhouse sas …`: what it prints is what the protocol says, and the server
//! takes it, and takes nothing else.

use serde_json::json;

use super::*;
use crate::support::server::account;

/// Runs `sas` without a database or settings.
fn sas(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let folder = fresh_folder();
    let output = run(&folder, &[&["sas"], arguments].concat(), variables);
    let left: Vec<_> = std::fs::read_dir(&folder).expect("a folder").collect();
    assert!(left.is_empty(), "signing touches no database");
    std::fs::remove_dir_all(folder).expect("the folder can go");
    output
}

/// The token for an account whose first key is in the environment.
#[track_caller]
fn token(of: &Account, arguments: &[&str]) -> String {
    let variables = [("ROWHOUSE_ACCOUNT", of.name.as_str()), ("ROWHOUSE_ACCOUNT_KEY", of.keys[0].as_str())];
    let output = sas(arguments, &variables);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text").trim_end().to_owned()
}

fn decoded(query: &str) -> Vec<(String, String)> {
    let value = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned();
    query.split('&').filter_map(|pair| pair.split_once('=')).map(|(n, v)| (n.to_owned(), value(v))).collect()
}

/// Demands the signature that the tests' own writing of the protocol makes.
#[track_caller]
fn signed_as_documented(of: &Account, query: &str) {
    let fields = decoded(query);
    let (signature, rest): (Vec<_>, Vec<_>) = fields.iter().partition(|(name, _)| name == "sig");
    let expected = Sas::from_fields(rest.iter().map(|(n, v)| (n.as_str(), v.as_str()))).signature(of);
    assert_eq!(signature[0].1, expected, "{query}");
}

#[test]
fn every_field_is_signed_as_documented() {
    let of = account(1);
    let all = ["--start", "2020-01-01", "--expiry", "2099-01-01T00:00:00Z", "--ip", "10.0.0.1-10.0.0.9"];
    let all = [&all[..], &["--protocol", "https,http"]].concat();
    for version in ["2015-04-05", "2019-02-02", "2020-12-06"] {
        let all = [&all[..], &["--sas-version", version]].concat();
        let range = ["--start-pk", "a", "--start-rk", "b'&", "--end-pk", "ü", "--end-rk", "d+"];
        let table =
            [&["table", "People", "--permissions", "daru", "--policy", "readers"], &range[..], &all].concat();
        let query = token(&of, &table);
        signed_as_documented(&of, &query);
        let names: Vec<String> = decoded(&query).into_iter().map(|(name, _)| name).collect();
        assert_eq!(
            names,
            ["sv", "tn", "si", "spk", "srk", "epk", "erk", "st", "se", "sp", "sip", "spr", "sig"]
        );
        let account = ["account", "--permissions", "luwr", "--services", "qt", "--resource-types", "oc"];
        let query = token(&of, &[&account[..], &all].concat());
        signed_as_documented(&of, &query);
        let value = |name: &str| decoded(&query).into_iter().find(|(n, _)| n == name).map(|(_, value)| value);
        assert_eq!(value("sp").as_deref(), Some("rwlu"), "in the service's order");
        assert_eq!((value("ss").as_deref(), value("srt").as_deref()), (Some("qt"), Some("co")));
    }
    for version in ["2012-02-12", "2015-02-21"] {
        let old = ["table", "People", "--permissions", "r", "--expiry", "1h", "--sas-version", version];
        signed_as_documented(&of, &token(&of, &old));
    }
}

#[test]
fn a_url_can_be_asked_as_it_is_and_allows_what_was_said() {
    let of = account(1);
    let site = Site::sqlite();
    let server = site.server(&["--accounts", &of.setting()]);
    let client = Client::path_style(server.address(), of.clone());
    let t = client.table();
    t.seed_rows("p", ["r"]);
    let origin = format!("http://{}", server.address());
    let url = ["table", &t.name, "--permissions", "r", "--expiry", "1h", "--url", "--endpoint", &origin];
    let url = token(&of, &url);
    let (address, query) = url.split_once('?').expect("a query");
    assert_eq!(address, format!("{origin}/{}/{}", of.name, t.name));
    let bearer = client.bearing(query);
    let there = Table::new(&bearer, t.name.clone());
    there.get("p", "r").expect(200);
    assert_eq!(there.insert(&with_keys("p", "s", json!({}))).status, 403);
}

#[test]
fn a_url_of_a_server_with_a_certificate_is_encrypted() {
    let arguments =
        ["table", "People", "--permissions", "r", "--expiry", "1h", "--url", "--listen", "127.0.0.1:9"];
    for (variables, scheme) in [(&[][..], "http"), (&[("ROWHOUSE_TLS_CERT", "server.crt")], "https")] {
        let output = sas(&arguments, variables);
        let url = String::from_utf8_lossy(&output.stdout);
        assert!(url.starts_with(&format!("{scheme}://127.0.0.1:9/")), "{output:?}");
    }
}

#[test]
fn a_connection_string_names_the_address_too() {
    let arguments = ["table", "People", "--permissions", "r", "--expiry", "1h", "--url"];
    let at = |more: &[&str], variables: &[(&str, &str)]| {
        let output = sas(&[&arguments[..], more].concat(), variables);
        assert!(output.status.success(), "{output:?}");
        let url = String::from_utf8(output.stdout).expect("text");
        url.split('?').next().unwrap_or_default().to_owned()
    };
    let of = |rest: &str| format!("AccountName=abc;AccountKey=AAAA;{rest}");
    let by_path = of("TableEndpoint=https://h.example:8/abc/;");
    let by_host = of("EndpointSuffix=h.example");
    assert_eq!(at(&["--connection-string", &by_path], &[]), "https://h.example:8/abc/People");
    assert_eq!(at(&["--connection-string", &by_host], &[]), "https://abc.table.h.example/People");
    assert_eq!(at(&["--connection-string", &of("")], &[]), "http://127.0.0.1:10002/abc/People");
    let endpoint = ["--connection-string", &by_path, "--endpoint", "http://other"];
    assert_eq!(at(&endpoint, &[]), "http://other/abc/People");
    let development = ["--connection-string", "UseDevelopmentStorage=true"];
    assert_eq!(at(&development, &[]), "http://127.0.0.1:10002/devstoreaccount1/People");
    // A flag wins over variables that say the same in another way.
    let string = [("ROWHOUSE_CONNECTION_STRING", by_path.as_str())];
    let pair = [("ROWHOUSE_ACCOUNT", "xyz"), ("ROWHOUSE_ACCOUNT_KEY", "AAAA")];
    let key = ["--account", "xyz", "--key", "AAAA"];
    assert_eq!(at(&key, &string), "http://127.0.0.1:10002/xyz/People");
    assert_eq!(at(&["--connection-string", &by_path], &pair), "https://h.example:8/abc/People");
    let url = ["account", "--permissions", "r", "--expiry", "1h", "--url", "--connection-string", &by_host];
    let output = sas(&url, &[]);
    assert!(output.stdout.starts_with(b"https://abc.table.h.example/?sv="), "{output:?}");
}

#[test]
fn a_token_that_has_expired_is_printed_with_a_warning() {
    let of = account(1);
    let key = ["--account", &of.name, "--key", &of.keys[0]];
    for (expiry, is_over) in [("2020-01-01", true), ("-1h", true), ("0s", true), ("1h", false)] {
        let expiry = format!("--expiry={expiry}");
        let output = sas(&[&["account", "--permissions", "r", expiry.as_str()], &key[..]].concat(), &[]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && output.stdout.starts_with(b"sv="), "{output:?}");
        assert_eq!(said.contains("warning") && said.contains("has passed"), is_over, "{expiry}: {said}");
    }
}

#[test]
fn the_key_comes_from_arguments_files_settings_or_the_database() {
    let (of, expiry) = (account(1), ["account", "--permissions", "r", "--expiry", "2099-01-01"]);
    let expected = token(&of, &expiry);
    let second = Account { name: of.name.clone(), keys: [of.keys[1].clone(), of.keys[0].clone()] };
    let connection =
        format!("DefaultEndpointsProtocol=https;AccountName={};AccountKey={};", of.name, of.keys[0]);
    let (setting, more) = (of.setting(), [account(2).setting(), of.setting()].join(";"));
    let told = |arguments: &[&str], variables: &[(&str, &str)]| {
        let output = sas(&[&expiry[..], arguments].concat(), variables);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text").trim_end().to_owned()
    };
    assert_eq!(told(&["--account", &of.name, "--key", &of.keys[0]], &[]), expected);
    assert_eq!(told(&["--connection-string", &connection], &[]), expected);
    assert_eq!(told(&[], &[("ROWHOUSE_CONNECTION_STRING", &connection)]), expected);
    assert_eq!(told(&["--accounts", &setting], &[]), expected);
    assert_eq!(told(&["--account", &of.name], &[("ROWHOUSE_ACCOUNTS", &more)]), expected);
    assert_eq!(told(&["--accounts", &setting, "--key-slot", "2"], &[]), token(&second, &expiry));
    let site = Site::sqlite();
    let key_file = site.folder.join("key");
    std::fs::write(&key_file, &of.keys[0]).expect("the folder is writable");
    let key_file = key_file.to_str().expect("a path");
    assert_eq!(told(&["--account", &of.name, "--key-file", key_file], &[]), expected);
    for site in Site::both() {
        let stored = account_of(&site.json(&["account", "add", "stored"]));
        let arguments = [&["sas"], &expiry[..], &["--account", "stored"]].concat();
        assert_eq!(site.json(&arguments)["token"], token(&stored, &expiry));
        let nobody = [&["sas"], &expiry[..], &["--account", "nobody"]].concat();
        site.fails(&nobody, &["no account nobody"]);
    }
}

#[test]
fn what_no_server_would_take_is_not_signed() {
    let string = ["--connection-string", "AccountName=abc;AccountKey=AAAA"];
    for (arguments, words) in [
        (&["table", "People", "--permissions", "r"][..], "expiry"),
        (&["table", "People", "--expiry", "1h"], "permissions"),
        (&["table", "P", "--permissions", "r", "--expiry", "1h"], "table"),
        (&["table", "People", "--permissions", "x", "--expiry", "1h"], "raud"),
        (&["table", "People", "--permissions", "r", "--expiry", "soon"], "soon"),
        (&["table", "People", "--permissions", "r", "--expiry", "99999999999999d"], "days"),
        (&["table", "People", "--permissions", "r", "--expiry", "1h", "--start", "2h"], "expire"),
        (&["table", "People", "--permissions", "r", "--expiry", "1h", "--start-rk", "r"], "partition key"),
        (&["table", "People", "--permissions", "r", "--expiry", "1h", "--ip", "x"], "IP"),
        (&["table", "People", "--permissions", "r", "--expiry", "1h", "--protocol", "http"], "https"),
        (&["table", "People", "--permissions", "r", "--expiry", "1h", "--sas-version", "1"], "version"),
        (&["account", "--permissions", "r", "--expiry", "1h", "--services", "b"], "services"),
        (&["account", "--permissions", "r", "--expiry", "1h", "--resource-types", "x"], "resource types"),
        (&["account", "--permissions", "r", "--expiry", "1h", "--key", "AAAA"], "--account"),
        (&["account", "--permissions", "r", "--expiry", "1h", "--account", "x", "--key", "%"], "base64"),
        (&["account", "--permissions", "r", "--expiry", "1h", "--connection-string", "x"], "AccountName"),
        (&["account", "--permissions", "r", "--expiry", "1h", "--account", "nobody"], "nobody"),
        (
            &[&["account", "--permissions", "r", "--expiry", "1h", "--key", "AAAA"], &string[..]].concat(),
            "--connection-string and --key",
        ),
        (
            &[&["account", "--permissions", "r", "--expiry", "1h", "--account", "xyz"], &string[..]].concat(),
            "the account abc, not for xyz",
        ),
        (
            &[&["account", "--permissions", "r", "--expiry", "1h", "--key-slot", "1"], &string[..]].concat(),
            "--key-slot",
        ),
    ] {
        let output = sas(arguments, &[]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "");
        failed(&output, &[words]);
    }
}

#[test]
fn a_token_is_inspected_and_judged() {
    let of = account(1);
    let made = token(&of, &["table", "People", "--permissions", "ra", "--expiry", "1h", "--start-pk", "a"]);
    let variables = [("ROWHOUSE_ACCOUNT", of.name.as_str()), ("ROWHOUSE_ACCOUNT_KEY", of.keys[0].as_str())];
    let inspect = |arguments: &[&str]| sas(&[&["inspect"], arguments].concat(), &variables);
    let fine = inspect(&[&made, "--json", "--method", "POST"]);
    assert!(fine.status.success(), "{fine:?}");
    let shown: serde_json::Value = serde_json::from_slice(&fine.stdout).expect("JSON");
    assert_eq!((&shown["valid"], &shown["signedBy"]), (&json!(true), &json!(1)));
    assert_eq!(shown["action"], json!({ "name": "insert an entity", "allowed": true }));
    let text = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    let url = format!("http://h/{}/People(PartitionKey='a',RowKey='r')?{made}", of.name);
    let denied = inspect(&[&url, "--method", "DELETE"]);
    assert!(
        !denied.status.success() && text(&denied).contains("Does not allow to delete an entity"),
        "{denied:?}"
    );
    let forged = inspect(&[&made.replace("sp=ra", "sp=raud")]);
    assert!(!forged.status.success(), "{forged:?}");
    assert!(text(&forged).contains("the signature fits none of the keys"), "{forged:?}");
    for output in [&fine, &denied, &forged] {
        assert!(!format!("{output:?}").contains(&of.keys[0]), "{output:?}");
    }
    assert!(!inspect(&["nothing"]).status.success());
}
