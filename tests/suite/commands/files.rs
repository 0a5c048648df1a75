//! `rowhouse copy` from files of other programs.

use std::io::Write as _;

use serde_json::json;

use super::*;

/// Copies a file that is made for the test, and returns what became of its entities.
#[track_caller]
fn read(file: &str, content: &str, more: &[&str]) -> Vec<Value> {
    let site = Site::sqlite();
    site.write(file, content);
    site.ends(&[&["copy", file, "dump:out", "--json"], more].concat(), 0, &[]);
    entities(&site)
}

/// The entities of a dump, without Timestamps.
pub fn entities(site: &Site) -> Vec<Value> {
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
    for (file, content) in [
        ("acct_People_20140903T051850.8128447Z_0_0_0123.json", format!(r#"{{"value":[{entity}]}}"#)),
        ("People.json", format!("[{entity}]")),
        ("People.json", format!("\u{feff}{entity}\n")),
        ("People.txt", format!("{entity}\n")),
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

/// Writes files below a folder of a site, and copies it to a dump.
#[track_caller]
fn read_folder(files: &[(&str, &[u8])]) -> Vec<Value> {
    let site = Site::sqlite();
    files.iter().for_each(|(file, content)| site.write(format!("in/{file}"), content));
    site.ends(&["copy", "in", "dump:out", "--json"], 0, &[]);
    entities(&site)
}

#[test]
fn folders_of_azcopy_are_read_by_their_manifest() {
    let manifest = br#"{"Version":2,"PayloadFormat":"Json","Checksum":15564613245429458971,"AccountName":"acct","TableName":"People","Timestamp":"2018-05-28T03:06:11.6482709Z","SplitSize":200000,"TotalDataFiles":2}"#;
    let data =
        |row: &str| format!(r#"{{"value":[{{"PartitionKey":"a","RowKey":"{row}","N":1}}]}}"#).into_bytes();
    let (first, second) = (data("1"), data("2"));
    let name = |number: u32| format!("acct_People_20180528T030611.6482709Z_0_{number}_00A1B2C3D4E5F607.json");
    let (one, two) = (name(0), name(1));
    let files: [(&str, &[u8]); 3] = [("any.manifest", manifest), (&one, &first), (&two, &second)];
    let expected =
        ["1", "2"].map(|row| json!({ "_table": "People", "PartitionKey": "a", "RowKey": row, "N": 1 }));
    assert_eq!(read_folder(&files), expected);
    // A data file that is missing is told.
    let site = Site::sqlite();
    site.write("any.manifest", manifest);
    site.write(&one, &first);
    site.ends(&["copy", "any.manifest", "dump:out"], 1, &["2 data files"]);
    // CSV has its types beside it, in one of several forms.
    for schema in [
        "PartitionKey,RowKey,N\nEdm.String,Edm.String,Edm.Int64\n",
        "N,Edm.Int64\n",
        "Edm.String,Edm.String,Int64",
    ] {
        let files: [(&str, &[u8]); 2] = [
            ("acct_People_20180528T030611.6482709Z_0_0_0A.csv", b"PartitionKey,RowKey,N\r\na,1,5\r\n"),
            ("acct_People_20180528T030611.6482709Z_0_0_0A.schema.csv", schema.as_bytes()),
        ];
        let row = json!({ "_table": "People", "PartitionKey": "a", "RowKey": "1",
            "N@odata.type": "Edm.Int64", "N": "5" });
        assert_eq!(read_folder(&files), [row], "{schema:?}");
    }
}

#[test]
fn values_that_are_objects_with_their_type_are_read() {
    let lines = [
        r#"{"PartitionKey":"a","RowKey":"1","L":{"L":5,"EdmType":"Int64"},"B":{"B":true,"EdmType":"Boolean"}}"#,
        r#"{"PartitionKey":"a","RowKey":"2","L":{"EdmType":7,"Int64Value":5},"B":{"EdmType":2,"BooleanValue":true}}"#,
        r#"{"PartitionKey":"a","RowKey":"3","L":{"value":5,"edm_type":"Edm.Int64"},"B":true}"#,
    ];
    let expected = ["1", "2", "3"].map(|row| {
        json!({ "_table": "People", "PartitionKey": "a", "RowKey": row, "L@odata.type": "Edm.Int64",
            "L": "5", "B": true })
    });
    let text = lines.join("\n");
    assert_eq!(read("People.json", &text, &[]), expected);
    // gzip under another name.
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, text.as_bytes()).expect("memory");
    assert_eq!(read_folder(&[("People.txt", &packed.finish().expect("memory"))]), expected);
    // A part of a dump of ours, alone.
    let site = Site::sqlite();
    site.write("People.json", text);
    assert!(site.run(&["copy", "People.json", "dump:first"]).status.success());
    let part = "first/People/000001-0001.ndjson.zst";
    for part in [format!("dump:{part}"), part.to_owned()] {
        site.ends(&["copy", &part, "dump:out"], 0, &[]);
        assert_eq!(entities(&site), expected);
        std::fs::remove_dir_all(site.folder.join("out")).expect("a folder");
    }
}

#[test]
fn types_that_a_file_does_not_tell_are_listed_before_anything_is_written() {
    let site = Site::sqlite();
    let untyped = r#"[{"PartitionKey":"a","RowKey":"1","Price":3,"Large":5000000000,"N":1,"X":[0,255]},
        {"PartitionKey":"a","RowKey":"2","Price":2.5,"Large":6,"N":2}]"#;
    site.write("People.json", untyped);
    let output = site.ends(&["copy", "People.json", "dump:out", "--dry-run", "--json"], 0, &[]);
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        found["inferred"],
        json!([
            { "table": "People", "property": "Large", "types": { "Int32": 1, "Int64": 1 }, "untyped": 2,
              "looksLike": null, "withoutZone": 0 },
            { "table": "People", "property": "N", "types": { "Int32": 2 }, "untyped": 2,
              "looksLike": null, "withoutZone": 0 },
            { "table": "People", "property": "Price", "types": { "Double": 1, "Int32": 1 }, "untyped": 2,
              "looksLike": null, "withoutZone": 0 },
        ])
    );
    site.ends(&["copy", "People.json", "sqlite://out.db", "--dry-run", "--mode", "replace"], 0, &[]);
    assert!(!site.folder.join("out/manifest.json").exists() && !site.folder.join("out.db").exists());
    let output = site.run(&["copy", "People.json", "dump:out", "--type", "Price=Double,Large=Int64"]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let found = entities(&site);
    assert_eq!(
        (&found[0]["Price"], &found[1]["Large"], &found[0]["X"]),
        (&json!(3.0), &json!("6"), &json!("AP8="))
    );
    // Without the types the doubtful ones are told.
    let output = site.run(&["copy", "People.json", "dump:other"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("People.Price") && said.contains("--type") && !said.contains("People.N"), "{said}");
}

/// The memory that a command has now, without the pages of its program, in bytes.
fn memory(child: &std::process::Child) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
    let line = status.lines().find(|line| line.starts_with("RssAnon:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib << 10)
}

/// The most memory that a command was seen to have before its end.
pub fn most_memory(child: &mut std::process::Child) -> u64 {
    let mut most = 0;
    // However long it works.
    while child.try_wait().expect("a process").is_none() {
        most = memory(child).unwrap_or(0).max(most);
        pace(Duration::from_millis(5));
    }
    most
}

#[test]
fn memory_does_not_grow_with_what_a_file_has_rejected_or_not() {
    let site = Site::sqlite();
    let long = "x".repeat(28 << 10);
    let mut file =
        std::io::BufWriter::new(std::fs::File::create(site.folder.join("People.json")).expect("a file"));
    // 78 MiB, nine of ten with a key that no service takes.
    for row in 0..1400 {
        let separator = if row % 10 == 0 { "-" } else { "/" };
        let entity = json!({ "PartitionKey": format!("a{separator}b"), "RowKey": format!("{row:05}"), "A": long, "B": long });
        writeln!(file, "{entity}").expect("a line");
    }
    drop(file);
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_rowhouse"));
    command.args(["copy", "People.json", "dump:out", "--state", "s", "--json"]);
    let said = site.folder.join("said.txt");
    command.current_dir(&site.folder).stdout(std::process::Stdio::null());
    command.stderr(std::fs::File::create(&said).expect("a file"));
    let mut child = command.spawn().expect("the binary runs");
    let most = most_memory(&mut child);
    assert_eq!(child.wait().expect("its end").code(), Some(3));
    println!("at most {most} bytes");
    assert!(most > 1 << 20 && most < 64 << 20, "{most} bytes");
    let rejects = site.read("s.rejects.jsonl");
    assert_eq!(rejects.lines().count(), 1260);
    let said = std::fs::read_to_string(said).expect("text");
    assert!(said.lines().any(|line| line.contains("and 1240 more")), "{} bytes", said.len());
    assert_eq!(entities(&site).len(), 140);
}
