//! `rowhouse copy` from files of other programs.

use serde_json::json;

use super::*;

/// Copies a file that is made for the test, and returns what became of its entities.
#[track_caller]
fn read(file: &str, content: &str, more: &[&str]) -> Vec<Value> {
    let site = Site::sqlite();
    std::fs::write(site.folder.join(file), content).expect("a file");
    let output = site.run(&[&["copy", file, "dump:out", "--json"], more].concat());
    assert!(output.status.success(), "{output:?}");
    entities(&site)
}

/// The entities of a dump, without Timestamps.
fn entities(site: &Site) -> Vec<Value> {
    let manifest = std::fs::read_to_string(site.folder.join("out/manifest.json")).expect("a manifest");
    let manifest: Value = serde_json::from_str(&manifest).expect("JSON");
    let mut found = Vec::new();
    for table in manifest["tables"].as_array().expect("tables") {
        for part in table["parts"].as_array().expect("parts") {
            let path = site.folder.join("out").join(part["file"].as_str().expect("a name"));
            let text = zstd::decode_all(std::fs::File::open(path).expect("a part")).expect("zstd");
            for line in String::from_utf8(text).expect("UTF-8").lines() {
                let mut entity: Value = serde_json::from_str(line).expect("JSON");
                let members = entity.as_object_mut().expect("an object");
                members.remove("Timestamp");
                members.remove("Timestamp@odata.type");
                members.insert("_table".into(), table["name"].clone());
                found.push(entity);
            }
        }
    }
    found
}

#[test]
fn azurites_workspace_is_read() {
    let collections = [
        (
            "$TABLES_COLLECTION$",
            json!([
                { "account": "devstoreaccount1", "table": "People", "tableAcl": [
                    { "id": "a", "accessPolicy": { "start": "2020-01-01T00:00:00Z", "expiry": "", "permission": "r" } } ] },
                { "account": "other", "table": "Hidden" },
                { "account": "devstoreaccount1", "table": "Empty" },
            ]),
        ),
        (
            "$SERVICES_COLLECTION$",
            json!([
            { "accountName": "devstoreaccount1", "cors": [ { "allowedOrigins": "http://a,http://b",
                "allowedMethods": "GET", "allowedHeaders": "", "exposedHeaders": "x", "maxAgeInSeconds": 5 } ] } ]),
        ),
        (
            "devstoreaccount1$people",
            json!([
                { "PartitionKey": "b", "RowKey": "r", "lastModifiedTime": "2021-02-03T04:05:06.1234567Z",
                  "eTag": "W/\"x\"", "properties": { "PartitionKey": "b", "RowKey": "r",
                    "G@odata.type": "Edm.Guid", "G": "MGY4ZmFkNWItZDljYi00NjlmLWExNjUtNzA4Njc3Mjg5NTBl",
                    "D@odata.type": "Edm.Double", "D": 3, "L@odata.type": "Edm.Int64", "L": "5", "I": 7, "B": true,
                    "Timestamp": "2021-02-03T04:05:06.1234567Z", "Timestamp@odata.type": "Edm.DateTime" } },
                { "PartitionKey": "a", "RowKey": "r", "properties": { "T@odata.type": "Edm.DateTime",
                    "T": "2020-01-01T02:00:00+02:00" }, "lastModifiedTime": "2021-02-03T04:05:06.1234568Z" },
            ]),
        ),
        ("other$Hidden", json!([ { "PartitionKey": "a", "RowKey": "r", "properties": {} } ])),
    ];
    // The program writes names before data.
    let collections =
        collections.map(|(name, data)| format!(r#"{{"name":"{name}","data":{data},"idIndex":[1]}}"#));
    let data =
        format!(r#"{{"filename":"x","collections":[{}],"databaseVersion":1.5}}"#, collections.join(","));
    assert_eq!(
        read("__azurite_db_table__.json", &data, &[]),
        [
            json!({ "_table": "People", "PartitionKey": "a", "RowKey": "r",
                "T@odata.type": "Edm.DateTime", "T": "2020-01-01T00:00:00Z" }),
            json!({ "_table": "People", "PartitionKey": "b", "RowKey": "r",
                "G@odata.type": "Edm.Guid", "G": "0f8fad5b-d9cb-469f-a165-70867728950e",
                "D@odata.type": "Edm.Double", "D": 3.0, "L@odata.type": "Edm.Int64", "L": "5", "I": 7, "B": true }),
        ]
    );
}

#[test]
fn json_of_other_programs_is_read() {
    let entity = r#"{"PartitionKey":"a","RowKey":"b","N@odata.type":"Edm.Int64","N":"5","value":1}"#;
    let expected = [json!({ "_table": "People", "PartitionKey": "a", "RowKey": "b",
        "N@odata.type": "Edm.Int64", "N": "5", "value": 1 })];
    let about = r#"{"Version":2,"RecordCount":1}"#;
    for (file, content) in [
        ("acct_People_20140903T051850.8128447Z_0_0_0123.json", format!(r#"{{"value":[{entity}]}}"#)),
        ("People.json", format!("[{entity}]")),
        ("People.json", format!("\u{feff}{entity}\n")),
        ("People_Backup_20200101000000.txt", format!("{about}\n{entity}\n{about}")),
        ("People.json", format!(r#"{{"items":[{entity}],"nextMarker":{{}}}}"#)),
    ] {
        assert_eq!(read(file, &content, &[]), expected, "{content}");
    }
    let untyped = r#"[{"odata.etag":"x","PartitionKey":"a","RowKey":"b","N":5,"value":1}]"#;
    assert_eq!(read("x.json", untyped, &["--table", "People", "--type", "N=Int64"]), expected);
}

#[test]
fn csv_of_storage_explorer_is_read() {
    let typed = "PartitionKey,RowKey,Timestamp,N,N@type,S,S@type,E,E@type\r\n\
        a,1,2020-01-01T00:00:00.123Z,5,Int64,\"x, \"\"y\"\"\nz\",String,,String\r\n\
        a,2,2020-01-01T00:00:00.123Z,6,,,,,\r\n";
    let expected = [
        json!({ "_table": "People", "PartitionKey": "a", "RowKey": "1", "N@odata.type": "Edm.Int64", "N": "5",
            "S": "x, \"y\"\nz", "E": "" }),
        json!({ "_table": "People", "PartitionKey": "a", "RowKey": "2", "N@odata.type": "Edm.Int64", "N": "6" }),
    ];
    assert_eq!(read("People.typed.csv", typed, &[]), expected);
    assert_eq!(
        read("People.csv", &typed.replace(',', ";").replace("x; ", "x, ").replace("Int64", "Edm.Int64"), &[]),
        expected
    );
    let untyped = "PartitionKey,RowKey,N\na,1,5\n";
    assert_eq!(
        read("People.csv", untyped, &["--type", "N=Int32"]),
        [json!({ "_table": "People", "PartitionKey": "a", "RowKey": "1", "N": 5 })]
    );
}

#[test]
fn what_is_not_understood_is_listed_and_not_altered() {
    let site = Site::sqlite();
    let lines = "{\"PartitionKey\":\"a\",\"RowKey\":\"1\",\"G@odata.type\":\"Edm.Guid\",\"G\":\"x\"}\n\
        {\"PartitionKey\":\"a/b\",\"RowKey\":\"2\"}\n{\"PartitionKey\":\"a\",\"RowKey\":\"3\"}\n";
    std::fs::write(site.folder.join("People.json"), lines).expect("a file");
    let output = site.run(&["copy", "People.json", "dump:out", "--rejects", "rejects.jsonl"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let rejects = std::fs::read_to_string(site.folder.join("rejects.jsonl")).expect("a file");
    let reasons: Vec<Value> = rejects.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(reasons.len(), 2, "{rejects}");
    assert_eq!(reasons[0]["entity"]["G"], "x");
    assert_eq!(entities(&site).len(), 1);
    for (file, content) in [("People.json", "[1,"), ("bad name!.json", "[]"), ("People.csv", "a,b\n1,2\n")] {
        std::fs::write(site.folder.join(file), content).expect("a file");
        let output = site.run(&["copy", file, "dump:other"]);
        assert!(matches!(output.status.code(), Some(1 | 2)), "{output:?}");
    }
}
