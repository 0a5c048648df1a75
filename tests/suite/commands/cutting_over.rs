//! Copies of changes with their settings, and what a copy may change and delete.

use serde_json::json;

use super::copying::{
    CORS_PATH, Served, acl_path, batch_rows, copy, equal, filled, put, put_settings, settings, start,
};
use super::*;

fn acl(id: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?><SignedIdentifiers><SignedIdentifier><Id>{id}</Id><AccessPolicy>\
         <Expiry>2040-01-01T00:00:00.0000000Z</Expiry><Permission>r</Permission></AccessPolicy></SignedIdentifier>\
         </SignedIdentifiers>"
    )
}

const NO_ACL: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?><SignedIdentifiers/>";
const NO_CORS: &str =
    "<?xml version=\"1.0\" encoding=\"utf-8\"?><StorageServiceProperties><Cors/></StorageServiceProperties>";

fn cors(origin: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?><StorageServiceProperties><Cors><CorsRule>\
         <AllowedOrigins>{origin}</AllowedOrigins><AllowedMethods>GET</AllowedMethods><AllowedHeaders/>\
         <ExposedHeaders/><MaxAgeInSeconds>5</MaxAgeInSeconds></CorsRule></Cors></StorageServiceProperties>"
    )
}

#[test]
fn copies_of_changes_carry_policies_and_cors_rules_that_change_meanwhile() {
    for site in Site::both() {
        let source = Served::new(site);
        let client = source.client();
        let [kept, emptied, dropped] = [client.table(), client.table(), client.table()];
        for table in [&kept, &emptied, &dropped] {
            batch_rows(table, "a", 120);
            put(&client, &acl_path(&table.name), &acl("first"));
        }
        put(&client, CORS_PATH, &cors("http://first.example"));
        let target = Served::new(Site::sqlite());
        let there = target.client();
        let places = [source.connection_string(), target.connection_string()];
        let run = |more: &str| {
            let variables = [("AZURE", places[0].as_str()), ("ROWHOUSE", places[1].as_str())];
            let arguments: Vec<&str> =
                ["copy", "env:AZURE", "env:ROWHOUSE"].into_iter().chain(more.split(' ')).collect();
            let output = source.site.run_with(&arguments, &variables);
            assert!(output.status.success(), "{more}: {output:?}");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        run("--dry-run");
        there.request("GET", &format!("/{}()", kept.name)).send().expect(404);
        run("--progress plain");
        assert!(settings(&there, &acl_path(&kept.name)).contains("first"));
        assert!(settings(&there, CORS_PATH).contains("first.example"));
        // Meanwhile policies and rules change, and a table is made.
        let made = client.table();
        batch_rows(&made, "a", 10);
        put(&client, &acl_path(&made.name), &acl("made"));
        put(&client, &acl_path(&kept.name), &acl("second"));
        put(&client, CORS_PATH, &cors("http://second.example"));
        run("--since 2020-01-01 --mode replace --yes");
        assert!(settings(&there, &acl_path(&made.name)).contains("made"));
        assert!(settings(&there, &acl_path(&kept.name)).contains("second"));
        assert!(settings(&there, CORS_PATH).contains("second.example"));
        // Others are removed, and so are an entity and a table.
        put(&client, &acl_path(&emptied.name), NO_ACL);
        put(&client, CORS_PATH, NO_CORS);
        kept.delete("a", "000007", Some("*")).expect(204);
        client.delete_table(&dropped.name).expect(204);
        let last = "--since 2020-01-01 --mode replace --mirror --max-delete 121 --verify --yes";
        let said = run(last);
        assert!(said.ends_with("\nequal\n") && said.contains("1 extra entities deleted"), "{said}");
        assert!(said.contains(&format!("the extra table {} deleted", dropped.name)), "{said}");
        for path in
            [acl_path(&kept.name), acl_path(&emptied.name), acl_path(&made.name), CORS_PATH.to_owned()]
        {
            assert_eq!(settings(&client, &path), settings(&there, &path), "{path}");
        }
        there.request("GET", &format!("/{}()", dropped.name)).send().expect(404);
    }
}

#[test]
fn a_copy_does_not_bring_back_unasked_what_was_revoked() {
    let (source, name, from) = filled(Site::sqlite(), 10);
    put_settings(&source.client(), &name);
    copy(&source.site, &from, "dump:before", &[]);
    let target = Served::new(Site::postgres());
    let (there, to) = (target.client(), target.connection_string());
    let acl_path = acl_path(&name);
    let are_there = || {
        let policies = settings(&there, &acl_path).contains("<Id>read</Id>");
        (policies, settings(&there, CORS_PATH).contains("a.example"))
    };
    copy(&source.site, "dump:before", &to, &[]);
    assert_eq!(are_there(), (true, true));
    put(&there, &acl_path, NO_ACL);
    put(&there, CORS_PATH, NO_CORS);
    let policies = format!("policies of {name}");
    let verified = ["verify", "dump:before", &to, "--recheck-delay", "0"];
    let differ = ["service properties differ", &format!("{policies} differ"), "not equal"];
    source.site.ends(&verified, 4, &differ);
    for from in ["dump:before", &from] {
        source.site.ends(&["copy", from, &to, "--mode", "insert", "--yes"], 0, &differ[..2]);
    }
    let merging = ["copy", "dump:before", &to, "--mode", "merge", "--yes"];
    source.site.ends(&merging[..5], 2, &["--yes", &format!("change the {policies}")]);
    assert_eq!(are_there(), (false, false));
    source.site.ends(&merging, 0, &[]);
    assert_eq!(are_there(), (true, true));
    source.site.ends(&verified, 0, &["equal"]);
}

#[test]
fn a_place_that_has_no_settings_differs_in_none() {
    let source = Served::new(Site::sqlite());
    let client = source.client();
    client.create_table("People").expect(201);
    Table::new(&client, "People").seed(json!({ "PartitionKey": "p", "RowKey": "1", "N": 1 }));
    put(&client, &acl_path("People"), &acl("first"));
    let to = source.connection_string();
    let lines = "{\"PartitionKey\":\"p\",\"RowKey\":\"1\",\"N\":1}\n";
    source.site.write("People.json", lines);
    let told = [
        "1 equal",
        "not compared: policies, because FROM does not have them",
        "not compared: service properties, because FROM does not have them",
        "equal except for the settings that were not compared",
    ];
    source.site.ends(&["verify", "People.json", &to], 0, &told);
    copy(&source.site, &to, "dump:whole", &[]);
    let whole = source.site.run(&["verify", "dump:whole", &to]);
    assert!(whole.status.success() && whole.stdout.ends_with(b" 0 different\nequal\n"), "{whole:?}");
    let deleting = ["copy", "People.json", &to, "--mode", "replace", "--mirror", "--yes"];
    source.site.ends(&deleting, 0, &["0 extra"]);
    assert!(settings(&client, &acl_path("People")).contains("first"));
}

#[test]
fn a_name_that_no_place_has_is_refused_and_nothing_is_never_equal() {
    let (source, name, from) = filled(Site::sqlite(), 10);
    let (here, both) = (&source.site, format!("{name},Typo"));
    let target = Served::new(Site::sqlite());
    let to = target.connection_string();
    for selection in [["--include", "Typo"], ["--include", &both], ["--exclude", "Typo"], ["--include", ""]] {
        for command in [
            &["copy", &from, &to][..],
            &["copy", &from, &to, "--dry-run"],
            &["verify", &from, &to],
            &["count", &from],
        ] {
            here.ends(&[command, &selection].concat(), 2, &["there is no table"]);
        }
    }
    for command in [["copy", &from, &to], ["verify", &from, &to]] {
        here.ends(&[&command[..], &["--rename", "Nope=Other"]].concat(), 2, &["FROM has no table Nope"]);
    }
    target.client().request("GET", &format!("/{name}()")).send().expect(404);
    here.ends(&["copy", &from, &to, "--include", "nothing*"], 0, &["no table matches nothing*"]);
    here.ends(&["count", &from, "--include", "nothing*"], 0, &["no table matches nothing*"]);
    here.ends(&["verify", &from, &to, "--include", "nothing*"], 4, &["no table was compared", "not equal"]);
    // A table is there by any spelling, and a restored one is compared with what it was made from.
    let (include, rename) = (name.to_uppercase(), format!("{name}=Restored"));
    let selection = ["--include", &include, "--rename", &rename];
    assert_eq!(copy(here, &from, &to, &selection)["copied"], 10);
    let verify = [&["verify", &from, &to, "--recheck-delay", "0"][..], &selection].concat();
    here.ends(&verify, 0, &["10 equal", "\nequal"]);
    Table::new(&target.client(), "Restored").delete("a", "000003", Some("*")).expect(204);
    here.ends(&verify, 4, &["1 missing", "not equal"]);
    let again = [&["copy", &from, &to, "--verify"][..], &selection].concat();
    here.ends(&again, 0, &["1 copied", "\nequal"]);
}

#[test]
fn what_would_be_changed_and_deleted_is_counted_and_limited_before_anything_is_done() {
    for site in Site::both() {
        let (source, name, from) = filled(site, 50);
        let client = source.client();
        let dropped = client.table();
        batch_rows(&dropped, "a", 20);
        let target = Served::new(Site::sqlite());
        let (here, to) = (&source.site, target.connection_string());
        copy(here, &from, &to, &[]);
        let there = target.client();
        let theirs = Table::new(&there, &name);
        theirs.seed(with_keys("extra", "1", json!({})));
        theirs.seed(with_keys("extra", "2", json!({})));
        theirs.merge("a", "000001", &json!({ "N": -1 }), Some("*")).expect(204);
        client.delete_table(&dropped.name).expect(204);
        let deleting = ["--mode", "replace", "--mirror"];
        for since in [&[][..], &["--since", "2020-01-01"]] {
            let found = here.json(&[&["copy", &from, &to, "--dry-run"][..], &deleting, since].concat());
            assert_eq!((&found["different"], &found["deleted"]), (&json!(1), &json!(2)), "{found}");
            assert_eq!(found["deletedTables"], json!({ dropped.name.clone(): 20 }), "{found}");
        }
        let found = here.json(&["copy", &from, &to, "--dry-run", "--mode", "skip"]);
        assert_eq!((&found["different"], &found["deleted"]), (&json!(1), &json!(0)), "{found}");
        let copying = [&["copy", &from, &to][..], &deleting].concat();
        let named = format!("delete the table {} with 20 entities", dropped.name);
        here.ends(&copying, 2, &["--yes", "delete 2 entities", &named, &name]);
        let limited = [&copying[..], &["--yes", "--max-delete", "21"]].concat();
        here.ends(&limited, 2, &["would delete 22 entities", "--max-delete 21"]);
        assert_eq!((theirs.count(), &theirs.entity("a", "000001")["N"]), (52, &json!(-1)));
        // An empty place, or the wrong one, is no reason to delete all.
        let empty = Site::sqlite();
        empty.json(&["migrate"]);
        let wrong = ["copy", &empty.url, &to, "--mirror", "--yes"];
        here.ends(&wrong, 2, &["FROM has no table"]);
        let allowed = [&copying[..], &["--yes", "--max-delete", "22", "--verify"]].concat();
        here.ends(&allowed, 0, &["2 extra entities deleted", "the extra table", "\nequal"]);
        there.request("GET", &format!("/{}()", dropped.name)).send().expect(404);
    }
}

#[test]
fn extra_tables_of_a_database_are_deleted_too() {
    let with_tables = |site: Site, names: &[&str]| {
        let served = Served::new(site);
        names.iter().for_each(|name| drop(served.client().create_table(name).expect(201)));
        drop(served.server);
        served.site
    };
    let source = with_tables(Site::sqlite(), &["Kept"]);
    let target = with_tables(Site::postgres(), &["Kept", "Gone"]);
    let from = format!("{}#{}", source.url, crate::support::server::account(1).name);
    let deleting = ["copy", &from, &target.url, "--mirror", "--yes", "--verify"];
    source.ends(&deleting, 0, &["the extra table Gone deleted", "\nequal"]);
}

#[test]
fn a_signature_of_a_range_of_keys_does_not_tell_what_is_absent() {
    let site = Site::sqlite();
    for name in ["spk", "SRK", "epk", "erk"] {
        let ranged = format!("http://127.0.0.1:1/abc?sv=2019-02-02&tn=People&{name}=a&sig=x");
        for arguments in [
            &["copy", &ranged, &site.url, "--mirror", "--yes"][..],
            &["copy", &ranged, &site.url, "--verify"],
            &["verify", &ranged, &site.url],
            &["verify", &site.url, &ranged],
        ] {
            site.ends(arguments, 2, &["range of keys"]);
        }
    }
}

#[test]
fn a_copy_with_an_empty_state_was_never_begun() {
    let (source, table, from) = filled(Site::sqlite(), 300);
    let here = &source.site;
    here.write("empty.state", "");
    for (to, again) in [("dump:d", 2), ("sqlite://d.db", 0)] {
        let begun = ["--state", "empty.state"];
        assert_eq!(copy(here, &from, to, &begun)["copied"], 300);
        here.ends(&[&["copy", &from, to][..], &begun].concat(), again, &[]);
        here.ends(&["verify", &from, to], 0, &["300 equal"]);
    }
    // What is deleted was not asked about before.
    here.write("extra.json", "{\"PartitionKey\":\"z\",\"RowKey\":\"1\"}\n");
    copy(here, "extra.json", &format!("sqlite://d.db#{}", source.account.name), &["--table", &table]);
    let begun = ["--state", "empty.state", "--mirror"];
    here.ends(&[&["copy", &from, "sqlite://d.db"][..], &begun].concat(), 2, &["delete 1 entities", "--yes"]);
    // A new beginning asks as any other.
    let asked = ["copy", &from, "sqlite://d.db", "--mode", "replace"];
    here.ends(&asked, 2, &["--yes", &table]);
}

#[test]
fn an_interrupted_copy_tells_how_to_go_on_and_what_was_done() {
    let (source, _, from) = filled(Site::sqlite(), 2000);
    let slow = ["--rate-limit", "200", "--state", "slow.state"];
    let child = start(&source.site, &from, "sqlite://slow.db", &slow);
    let database = source.site.folder.join("slow.db");
    until("some entities are there", || {
        let copied = rusqlite::Connection::open(&database)
            .and_then(|db| db.query_row("SELECT EXISTS (SELECT 1 FROM entities)", [], |row| row.get(0)));
        copied.unwrap_or(false)
    });
    signal(&child, "INT");
    let output = child.wait_with_output().expect("its end");
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        ["interrupted", "the same command continues", "slow.state"].iter().all(|word| said.contains(word)),
        "{said}"
    );
    let so_far: Value = serde_json::from_slice(&output.stdout).expect("a summary");
    assert!(so_far["copied"].as_u64().is_some_and(|copied| copied < 2000), "{so_far}");
    let resumed = copy(&source.site, &from, "sqlite://slow.db", &slow[2..]);
    assert_eq!(resumed["copied"], 2000, "{resumed}");
}

#[test]
fn a_table_that_the_target_lacks_is_copied_whole_whatever_has_changed_since() {
    let (source, name, from) = filled(Site::sqlite(), 20);
    let newest = Table::new(&source.client(), &name).seed(with_keys("b", "newest", json!({})));
    let (since, to) = (timestamp_of(&newest), Site::sqlite());
    let told = format!("TO lacked {name}: all its entities");
    to.ends(&["copy", &from, &to.url, "--since", &since], 0, &[&told]);
    equal(&to, &from, &to.url, &[]);
    // By then there is something to change.
    let changes = ["copy", &from, &to.url, "--since", &since, "--json"];
    assert_eq!(printed(&to.run(&changes))["unchanged"], 1);
}
