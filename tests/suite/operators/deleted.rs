//! `/deleted-tables`.

use super::*;

#[test]
fn deleted_tables_come_back_over_the_admin_listener() {
    let (server, admin) = server(&fresh_database(), &["--admin-token", TOKEN, "--keep-deleted", "7d"]);
    let client = server.client();
    let list =
        || done(&call(&admin, "GET", &format!("/deleted-tables?account={}", account(1).name), ""), 200);
    assert_eq!(list(), json!({ "keepDeleted": "1w", "tables": [], "more": false }));
    let (one, other) = (client.table(), client.table());
    for table in [&one, &other] {
        table.seed_rows("p", ["1", "2"]);
        client.delete_table(&table.name).expect(204);
    }
    let listed = list()["tables"].clone();
    let names = [&listed[0], &listed[1]].map(|table| table["table"].as_str().expect("a name"));
    assert_eq!(names, [&other.name, &one.name], "the last deleted first");
    assert_eq!((&listed[0]["entities"], &listed[0]["complete"]), (&json!(2), &json!(true)));
    assert!(listed[0]["bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{listed}");
    let path = |table: &Value, verb: &str| format!("/deleted-tables/{}{verb}", table["id"]);
    let undelete = path(&listed[1], "/undelete");
    for body in [r#"{"as":"no name"}"#, r#"{"name":"Other"}"#, "{"] {
        refused(&call(&admin, "POST", &undelete, body), 400, "BadRequest");
    }
    refused(&ask(&admin, "POST", &undelete, ""), 401, "Unauthorized");
    refused(&ask(&admin, "DELETE", &path(&listed[1], ""), ""), 401, "Unauthorized");
    refused(&call(&admin, "DELETE", "/deleted-tables/x", ""), 404, "DeletedTableNotFound");
    refused(&call(&admin, "GET", "/deleted-tables?account=nobody", ""), 404, "AccountNotFound");
    refused(&call(&admin, "POST", &undelete, r#"{"as":"Other"}"#), 409, "RenamedTooSoon");
    client.create_table(&one.name).expect(201);
    refused(&call(&admin, "POST", &undelete, ""), 409, "TableAlreadyExists");
    client.delete_table(&one.name).expect(204);
    assert_eq!(done(&call(&admin, "POST", &undelete, "{}"), 200)["table"], json!(one.name));
    assert_eq!(one.count(), 2);
    refused(&call(&admin, "POST", &undelete, ""), 404, "DeletedTableNotFound");
    done(&call(&admin, "DELETE", &path(&listed[0], ""), ""), 200);
    refused(&call(&admin, "POST", &path(&listed[0], "/undelete"), ""), 404, "DeletedTableNotFound");
    for (action, table) in
        [("POST /deleted-tables/{id}/undelete", &listed[1]), ("DELETE /deleted-tables/{id}", &listed[0])]
    {
        audits(&server, action, "200", &format!("{}/{}", table["table"].as_str().unwrap(), table["id"]));
    }
}
