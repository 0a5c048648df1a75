//! `/deleted-tables`.

use super::indexes::{databases, send};
use super::*;

#[test]
fn deleted_tables_come_back_over_the_admin_listener() {
    for database in databases() {
        let (server, admin) = server(&database, &["--admin-token", TOKEN, "--keep-deleted", "7d"]);
        let client = client(&server);
        let list =
            || json_of(&send(&admin, "GET", &format!("/deleted-tables?account={}", account(1).name), ""));
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
        for (body, status, code) in [
            (r#"{"as":"no name"}"#, 400, "BadRequest"),
            (r#"{"name":"Other"}"#, 400, "BadRequest"),
            ("{", 400, "BadRequest"),
        ] {
            refused(&send(&admin, "POST", &undelete, body), status, code);
        }
        refused(&ask(&admin, "POST", &undelete, ""), 401, "Unauthorized");
        refused(&ask(&admin, "DELETE", &path(&listed[1], ""), ""), 401, "Unauthorized");
        refused(&send(&admin, "POST", "/deleted-tables/1/undelete", ""), 404, "DeletedTableNotFound");
        refused(&send(&admin, "DELETE", "/deleted-tables/x", ""), 404, "DeletedTableNotFound");
        refused(&send(&admin, "GET", "/deleted-tables?account=nobody", ""), 404, "AccountNotFound");
        if database.starts_with("postgres") {
            refused(&send(&admin, "POST", &undelete, r#"{"as":"Other"}"#), 409, "RenamedTooSoon");
        }
        client.create_table(&one.name).expect(201);
        refused(&send(&admin, "POST", &undelete, ""), 409, "TableAlreadyExists");
        client.delete_table(&one.name).expect(204);
        let undeleted = json_of(&send(&admin, "POST", &undelete, "{}"));
        assert_eq!(undeleted["table"], json!(one.name));
        assert_eq!(one.count(), 2);
        refused(&send(&admin, "POST", &undelete, ""), 404, "DeletedTableNotFound");
        assert_eq!(send(&admin, "DELETE", &path(&listed[0], ""), "").status, 200);
        refused(&send(&admin, "POST", &path(&listed[0], "/undelete"), ""), 404, "DeletedTableNotFound");
        for (action, table) in
            [("POST /deleted-tables/{id}/undelete", &listed[1]), ("DELETE /deleted-tables/{id}", &listed[0])]
        {
            let subject = format!(
                "account=\"{}\" subject=\"{}/{}\"",
                account(1).name,
                table["table"].as_str().unwrap(),
                table["id"]
            );
            let is_of =
                |line: &str| line.contains("audit") && line.contains(action) && line.contains("status=200");
            let log = server.log();
            let audited = log.lines().find(|line| is_of(line)).unwrap_or_else(|| panic!("{action}: {log}"));
            assert!(audited.contains(&subject), "{audited}");
        }
    }
}
