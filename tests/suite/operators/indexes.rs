//! `/indexes` and `/index-suggestions`.

use super::*;

pub(super) fn send(admin: &Wire, verb: &str, path: &str, body: &str) -> Raw {
    let (host, length) = (admin.address(), body.len());
    let head = format!(
        "{verb} {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: {length}\r\n\r\n"
    );
    admin.exchange(verb, [head.as_bytes(), body.as_bytes()].concat().as_slice())
}

pub fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

pub(super) fn databases() -> [String; 2] {
    [format!("sqlite://{}", fresh_folder().join("tables.db").display()), fresh_database()]
}

#[test]
fn indexes_come_and_go_over_the_admin_listener() {
    for database in databases() {
        let (server, admin) = server(&database, &["--admin-token", TOKEN]);
        let client = client(&server);
        let table = client.table();
        for number in 0..20 {
            table.seed(with_keys("p", &number.to_string(), json!({ "N": number })));
        }
        let wanted = |property: &str, kind: &str| {
            json!({ "account": account(1).name, "table": table.name, "property": property, "kind": kind })
                .to_string()
        };
        let added = send(&admin, "POST", "/indexes", &wanted("N", "number"));
        assert_eq!(added.status, 201, "{added:?}");
        let added = json_of(&added);
        assert_eq!((&added["state"], &added["property"]), (&json!("building"), &json!("N")));
        let list = || json_of(&send(&admin, "GET", &format!("/indexes?account={}", account(1).name), ""));
        wait_until("it is built", || list()[0]["state"] == "ready");
        for (body, status, code) in [
            (wanted("N", "number"), 409, "IndexAlreadyExists"),
            (wanted("N", "color"), 400, "BadRequest"),
            (wanted("a' OR 1=1 --", "text"), 400, "BadRequest"),
            (wanted("Timestamp", "time"), 400, "BadRequest"),
            ("{}".to_owned(), 400, "BadRequest"),
            (
                json!({ "account": "nobody", "table": "T", "property": "P" }).to_string(),
                404,
                "AccountNotFound",
            ),
            (
                json!({ "account": account(1).name, "table": "Missing", "property": "P" }).to_string(),
                404,
                "TableNotFound",
            ),
        ] {
            refused(&send(&admin, "POST", "/indexes", &body), status, code);
        }
        refused(&ask(&admin, "POST", "/indexes", ""), 401, "Unauthorized");
        let path = format!("/indexes/{}", added["id"]);
        assert_eq!(send(&admin, "DELETE", &path, "").status, 200);
        refused(&send(&admin, "DELETE", &path, ""), 404, "IndexNotFound");
        refused(&send(&admin, "DELETE", "/indexes/x", ""), 404, "IndexNotFound");
        assert_eq!(list(), json!([]));
        let subject = format!("account=\"{}\" subject=\"{}/N\"", account(1).name, table.name);
        for action in ["POST /indexes", "DELETE /indexes/{id}"] {
            let is_of =
                |line: &str| line.contains("audit") && line.contains(action) && line.contains("status=20");
            let log = server.log();
            let audited = log.lines().find(|line| is_of(line)).unwrap_or_else(|| panic!("{action}: {log}"));
            assert!(audited.to_lowercase().contains(&subject.to_lowercase()), "{audited}");
        }
    }
}

#[test]
fn scans_that_return_little_are_suggested() {
    let folder = fresh_folder();
    let database = format!("sqlite://{}", folder.join("tables.db").display());
    let (server, admin) = server(&database, &[]);
    let client = client(&server);
    let table = client.table();
    for group in 0..11 {
        let mut batch = Batch::new();
        for row in 0..100 {
            let entity =
                with_keys("p", &format!("{group:02}{row:02}"), json!({ "Email": format!("e{group}-{row}") }));
            batch = batch.insert(&table, &entity);
        }
        batch.commit(&client);
    }
    table.filter("Email eq 'e3-7' and PartitionKey ge 'a'").expect(200);
    let found = json_of(&get(&admin, "/index-suggestions"));
    assert_eq!(found.as_array().map(Vec::len), Some(1), "{found}");
    let first = &found[0];
    assert_eq!((&first["property"], &first["kind"]), (&json!("Email"), &json!("text")));
    assert_eq!(
        (&first["pages"], &first["examined"], &first["returned"]),
        (&json!(1), &json!(1100), &json!(1))
    );
    let address = admin.address().to_owned();
    let told = run(&folder, &["index", "suggest", "--admin-listen", &address, "--json"], &[]);
    assert_eq!(printed(&told), found);
}
