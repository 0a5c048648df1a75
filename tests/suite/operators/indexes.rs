//! `/indexes` and `/index-suggestions`.

use super::*;

#[test]
fn indexes_come_and_go_over_the_admin_listener() {
    let (server, admin) = server("sqlite::memory:", &["--admin-token", TOKEN]);
    let client = server.client();
    let table = client.table();
    table.seed(with_keys("p", "r", json!({ "N": 1 })));
    let wanted = |account: &str, table: &str, property: &str, kind: &str| {
        json!({ "account": account, "table": table, "property": property, "kind": kind }).to_string()
    };
    let (own, name) = (account(1).name, table.name.as_str());
    let good = wanted(&own, name, "N", "number");
    let added = done(&call(&admin, "POST", "/indexes", &good), 201);
    assert_eq!((&added["state"], &added["property"]), (&json!("building"), &json!("N")));
    let list = || done(&call(&admin, "GET", &format!("/indexes?account={own}"), ""), 200);
    until("it is built", || list()[0]["state"] == "ready");
    for (body, status, code) in [
        (good, 409, "IndexAlreadyExists"),
        (wanted(&own, name, "N", "color"), 400, "BadRequest"),
        (wanted(&own, name, "a' OR 1=1 --", "text"), 400, "BadRequest"),
        ("{}".to_owned(), 400, "BadRequest"),
        (wanted("nobody", name, "P", "text"), 404, "AccountNotFound"),
        (wanted(&own, "Missing", "P", "text"), 404, "TableNotFound"),
    ] {
        refused(&call(&admin, "POST", "/indexes", &body), status, code);
    }
    refused(&ask(&admin, "POST", "/indexes", ""), 401, "Unauthorized");
    let path = format!("/indexes/{}", added["id"]);
    done(&call(&admin, "DELETE", &path, ""), 200);
    refused(&call(&admin, "DELETE", &path, ""), 404, "IndexNotFound");
    refused(&call(&admin, "DELETE", "/indexes/x", ""), 404, "IndexNotFound");
    assert_eq!(list(), json!([]));
    for action in ["POST /indexes", "DELETE /indexes/{id}"] {
        audits(&server, action, "20", &format!("{name}/N"));
    }
}

#[test]
fn scans_that_return_little_are_suggested() {
    let folder = fresh_folder();
    let database = format!("sqlite://{}", folder.join("tables.db").display());
    let (server, admin) = server(&database, &[]);
    let client = server.client();
    let table = client.table();
    let email = |row: usize| json!({ "Email": format!("e{}-{}", row / 100, row % 100) });
    table.seed_many((0..1100).map(|row| with_keys("p", &format!("{row:04}"), email(row))));
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
    let (own, name) = (account(1).name, table.name.as_str());
    let create = ["index", "create", name, "Email", "--account", own.as_str(), "--yes"];
    let created = run(&folder, &create, &[("DATABASE_URL", database.as_str())]);
    assert!(created.status.success(), "{created:?}");
    assert_eq!(json_of(&get(&admin, "/index-suggestions")), json!([]));
}
