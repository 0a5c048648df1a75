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

/// Demands these fields, and the signature that the tests' own writing of the protocol makes.
#[track_caller]
fn has_fields(of: &Account, query: &str, expected: &[(&str, &str)]) {
    let mut fields = decoded(query);
    let signature = fields.pop().expect("a signature");
    let shown: Vec<(&str, &str)> =
        fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(shown, expected);
    let expected = Sas::from_fields(shown).signature(of);
    assert_eq!(signature, ("sig".into(), expected), "{query}");
}

#[test]
fn each_option_is_a_signed_field() {
    let of = account(1);
    let times = ["--start", "2020-01-01", "--expiry", "2099-01-01T00:00:00Z"];
    let source = ["--ip", "10.0.0.1-10.0.0.9", "--protocol", "https,http", "--sas-version", "2019-02-02"];
    let range = ["--start-pk", "a", "--start-rk", "b'&", "--end-pk", "ü", "--end-rk", "d+"];
    let table = ["table", "People", "--permissions", "daru", "--policy", "readers"];
    let restrictions = [("sip", "10.0.0.1-10.0.0.9"), ("spr", "https,http")];
    let period = [("st", "2020-01-01"), ("se", "2099-01-01T00:00:00Z")];
    let of_table = [("sv", "2019-02-02"), ("tn", "People"), ("si", "readers")];
    let keys = [("spk", "a"), ("srk", "b'&"), ("epk", "ü"), ("erk", "d+")];
    let expected = [&of_table[..], &keys, &period, &[("sp", "raud")], &restrictions].concat();
    has_fields(&of, &token(&of, &[&table[..], &range, &times, &source].concat()), &expected);
    let account = ["account", "--permissions", "luwr", "--services", "qt", "--resource-types", "oc"];
    let of_account = [("sv", "2019-02-02"), ("ss", "qt"), ("srt", "co")];
    let expected = [&of_account[..], &period, &[("sp", "rwlu")], &restrictions].concat();
    has_fields(&of, &token(&of, &[&account[..], &times, &source].concat()), &expected);
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
fn a_url_begins_with_the_endpoint_of_the_settings() {
    let table = ["table", "People", "--permissions", "r", "--expiry", "1h", "--url"];
    let of = |rest: &str| format!("AccountName=abc;AccountKey=AAAA;{rest}");
    let (by_path, by_host) = (of("TableEndpoint=https://h.example:8/abc/;"), of("EndpointSuffix=h.example"));
    let string = [("ROWHOUSE_CONNECTION_STRING", by_path.as_str())];
    let pair = [("ROWHOUSE_ACCOUNT", "xyz"), ("ROWHOUSE_ACCOUNT_KEY", "AAAA")];
    let certificate = [("ROWHOUSE_TLS_CERT", "server.crt")];
    for (more, variables, expected) in [
        (&["--listen", "127.0.0.1:9"][..], &[][..], "http://127.0.0.1:9/devstoreaccount1/People"),
        (&["--listen", "127.0.0.1:9"], &certificate, "https://127.0.0.1:9/devstoreaccount1/People"),
        (&["--connection-string", &by_path], &[], "https://h.example:8/abc/People"),
        (&["--connection-string", &by_host], &[], "https://abc.table.h.example/People"),
        (&["--connection-string", &of("")], &[], "http://127.0.0.1:10002/abc/People"),
        (&["--connection-string", &by_path, "--endpoint", "http://other"], &[], "http://other/abc/People"),
        // A flag wins over variables that say the same in another way.
        (&["--account", "xyz", "--key", "AAAA"], &string, "http://127.0.0.1:10002/xyz/People"),
        (&["--connection-string", &by_path], &pair, "https://h.example:8/abc/People"),
    ] {
        let output = sas(&[&table[..], more].concat(), variables);
        let url = String::from_utf8_lossy(&output.stdout);
        assert_eq!(url.split('?').next(), Some(expected), "{output:?}");
    }
    let account =
        ["account", "--permissions", "r", "--expiry", "1h", "--url", "--connection-string", &by_host];
    let output = sas(&account, &[]);
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
    for (arguments, variables) in [
        (&["--account", &of.name, "--key", &of.keys[0]][..], &[][..]),
        (&["--connection-string", &connection], &[]),
        (&[], &[("ROWHOUSE_CONNECTION_STRING", connection.as_str())]),
        (&["--accounts", &setting], &[]),
        (&["--account", &of.name], &[("ROWHOUSE_ACCOUNTS", &more)]),
    ] {
        assert_eq!(told(arguments, variables), expected, "{arguments:?}");
    }
    assert_eq!(told(&["--accounts", &setting, "--key-slot", "2"], &[]), token(&second, &expiry));
    let site = Site::sqlite();
    site.write("key", &of.keys[0]);
    let key_file = site.folder.join("key").display().to_string();
    assert_eq!(told(&["--account", &of.name, "--key-file", &key_file], &[]), expected);
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
    let of_account = ["account", "--permissions", "r", "--expiry", "1h"];
    let string = ["--connection-string", "AccountName=abc;AccountKey=AAAA"];
    let of_string = |more: [&'static str; 2]| [&string[..], &more].concat();
    assert!(sas(&[&of_account[..], &string].concat(), &[]).status.success());
    for (more, words) in [
        (vec!["--services", "b"], "services"),
        (vec!["--start", "2h"], "expire"),
        (vec!["--key", "AAAA"], "--account"),
        (vec!["--account", "x", "--key", "%"], "base64"),
        (vec!["--connection-string", "x"], "AccountName"),
        (vec!["--account", "nobody"], "nobody"),
        (of_string(["--key", "AAAA"]), "--connection-string and --key"),
        (of_string(["--account", "xyz"]), "the account abc, not for xyz"),
        (of_string(["--key-slot", "1"]), "--key-slot"),
    ] {
        let output = sas(&[&of_account[..], &more].concat(), &[]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "");
        failed(&output, &[words]);
    }
    let of_table = ["table", "People", "--permissions", "r", "--expiry", "1h"];
    for (changed, words) in [
        (of_table[..4].to_vec(), "expiry"),
        ([&of_table[..], &["--start-rk", "r"]].concat(), "partition key"),
        ([&of_table[..5], &["99999999999999d"]].concat(), "days"),
    ] {
        failed(&sas(&changed, &[]), &[words]);
    }
}

#[test]
fn a_token_is_inspected_and_judged() {
    let of = account(1);
    let made = token(&of, &["table", "People", "--permissions", "ra", "--expiry", "1h"]);
    let variables = [("ROWHOUSE_ACCOUNT", of.name.as_str()), ("ROWHOUSE_ACCOUNT_KEY", of.keys[0].as_str())];
    let inspect = |arguments: &[&str]| {
        let output = sas(&[&["inspect"], arguments].concat(), &variables);
        assert!(!format!("{output:?}").contains(&of.keys[0]), "{output:?}");
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (is_fine, shown) = inspect(&[&made, "--json", "--method", "POST"]);
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    assert_eq!((is_fine, &shown["valid"], &shown["signedBy"]), (true, &json!(true), &json!(1)));
    assert_eq!(shown["action"], json!({ "name": "insert an entity", "allowed": true }));
    let url = format!("http://h/{}/People(PartitionKey='a',RowKey='r')?{made}", of.name);
    let forged = made.replace("sp=ra", "sp=raud");
    for (arguments, told) in [
        (&[url.as_str(), "--method", "DELETE"][..], "Does not allow to delete an entity"),
        (&[&forged], "the signature fits none of the keys"),
        (&["nothing"], ""),
    ] {
        let (is_fine, shown) = inspect(arguments);
        assert!(!is_fine && shown.contains(told), "{shown}");
    }
}
