//! What files leave open, and what they have wrong: read rightly, refused, or told before anything is written.

use serde_json::json;

use super::files::entities;
use super::*;

/// Copies a file to a dump; returns the output and the site.
fn copied(file: &str, content: &[u8], more: &[&str]) -> (Output, Site) {
    let site = Site::sqlite();
    std::fs::write(site.folder.join(file), content).expect("a file");
    let output = site.run(&[&["copy", file, "dump:out"], more].concat());
    (output, site)
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Demands that a file is refused as a whole, for a reason with these words.
#[track_caller]
fn refused(file: &str, content: &[u8], words: &[&str]) {
    let (output, site) = copied(file, content, &[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    words.iter().for_each(|word| assert!(said(&output).contains(word), "{word} in {output:?}"));
    assert!(!site.folder.join("out/manifest.json").exists());
}

/// Demands that all is copied, and these words are told before.
#[track_caller]
fn told(file: &str, content: &str, words: &[&str]) -> Vec<Value> {
    let (output, site) = copied(file, content.as_bytes(), &[]);
    assert!(output.status.success(), "{output:?}");
    words.iter().for_each(|word| assert!(said(&output).contains(word), "{word} in {output:?}"));
    entities(&site)
}

/// The reasons of rejected entities, and how many were copied.
#[track_caller]
fn rejected(file: &str, content: &str) -> (Vec<String>, usize) {
    let (output, site) = copied(file, content.as_bytes(), &["--rejects", "rejects.jsonl", "--json"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let reasons: Vec<String> =
        lines(&site).iter().map(|line| line["reason"].as_str().expect("text").into()).collect();
    let summary: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(summary["rejected"], reasons.len(), "{summary}");
    (reasons, entities(&site).len())
}

fn lines(site: &Site) -> Vec<Value> {
    let text = std::fs::read_to_string(site.folder.join("rejects.jsonl")).expect("a file");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn strings_that_look_like_another_type_are_told() {
    let file = r#"[{"PartitionKey":"a","RowKey":"1","When":"2020-01-02T03:04:05Z","Name":"word",
        "Id":"0f8fad5b-d9cb-469f-a165-70867728950e","Bytes":"AQI="}]"#;
    let words =
        ["People.When: read as String; looks like DateTime: --type When=DateTime", "Id=Guid", "Bytes=Binary"];
    told("People.json", file, &words);
    told("People.csv", "PartitionKey,RowKey,When\na,1,2020-01-02\n", &words[..1]);
    let (output, _) = copied("People.json", file.as_bytes(), &["--dry-run", "--json"]);
    assert!(output.status.success() && !said(&output).contains("Name"), "{output:?}");
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let looks: Vec<&Value> =
        found["inferred"].as_array().expect("a list").iter().map(|p| &p["looksLike"]).collect();
    assert_eq!(looks, ["Binary", "Guid", "DateTime"]);
    // With annotations, a string is one.
    let annotated =
        r#"[{"PartitionKey":"a","RowKey":"1","When":"2020-01-02","L":"1","L@odata.type":"Edm.Int64"}]"#;
    let (output, _) = copied("People.json", annotated.as_bytes(), &[]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn dates_without_a_zone_are_told_and_too_exact_ones_rejected() {
    let date = |row: u32, text: &str| {
        format!(
            "{{\"PartitionKey\":\"a\",\"RowKey\":\"{row}\",\"T@odata.type\":\"Edm.DateTime\",\"T\":\"{text}\"}}\n"
        )
    };
    let lines =
        [date(1, "2020-01-02T03:04:05"), date(2, "2020-01-02"), date(3, "2020-01-02T03:04:05.12345670Z")];
    let read = told("People.json", &lines.concat(), &["People.T: 2 dates have no zone, and are read as UTC"]);
    assert_eq!(
        (&read[0]["T"], &read[2]["T"]),
        (&json!("2020-01-02T03:04:05Z"), &json!("2020-01-02T03:04:05.1234567Z"))
    );
    let (reasons, _) = rejected("People.json", &date(1, "2020-01-02T03:04:05.12345678Z"));
    assert_eq!(reasons, ["T: '2020-01-02T03:04:05.12345678Z' has more than seven digits of a second"]);
}

#[test]
fn csv_that_was_cut_is_not_copied_as_if_it_were_whole() {
    refused("People.csv", b"PartitionKey,RowKey,S\na,1,x\na,2,\"y", &["within quotes"]);
    told("People.csv", "PartitionKey,RowKey,S\na,1\na,2,x\n", &["1 rows have fewer values"]);
    // The last value may have lost its end.
    for cut in ["a,2", "a,2,", "a,2,y", "a,2,\"y\""] {
        let (reasons, copied) = rejected("People.csv", &format!("PartitionKey,RowKey,S\na,1,x\n{cut}"));
        assert!(reasons[0].contains("the file ends inside this row") && copied == 1, "{reasons:?}");
    }
}

#[test]
fn csv_with_carriage_returns_alone_is_read_and_a_repeated_column_refused() {
    let read = told("People.csv", "PartitionKey,RowKey,A\ra,1,x\ra,2,\"y\rz\"\r", &[]);
    let values: Vec<&Value> = read.iter().map(|entity| &entity["A"]).collect();
    assert_eq!(values, ["x", "y\rz"]);
    refused("People.csv", b"PartitionKey,RowKey,A,A\na,1,x,y\n", &["the column A occurs twice"]);
}

#[test]
fn a_type_that_comes_in_a_later_row_holds_for_all() {
    let read = told("People.csv", "PartitionKey,RowKey,N,N@type\na,1,5,\na,2,,\na,3,6,Int32\n", &[]);
    assert_eq!((&read[0]["N"], &read[2]["N"]), (&json!(5), &json!(6)));
}

#[test]
fn members_that_stand_twice_and_integers_beyond_int64_are_rejected() {
    let (reasons, copied) = rejected(
        "People.json",
        r#"[{"PartitionKey":"a","RowKey":"1","A":1,"A":2},{"PartitionKey":"a","RowKey":"2","N":123456789012345678901234567890},
        {"PartitionKey":"a","RowKey":"3","N":9223372036854775808},{"PartitionKey":"a","RowKey":"4","N":9223372036854775807}]"#,
    );
    assert_eq!(copied, 1);
    assert_eq!(reasons[0], "A stands twice");
    assert!(reasons[1].starts_with("N: 123456789012345678901234567890 is beyond Int64"), "{reasons:?}");
    assert!(reasons[2].starts_with("N: 9223372036854775808 is beyond Int64"), "{reasons:?}");
}

#[test]
fn other_files_of_a_folder_are_told() {
    let site = Site::sqlite();
    std::fs::create_dir_all(site.folder.join("in/Cities")).expect("a folder");
    let files = [
        ("People.tsv", "PartitionKey\tRowKey\na\t1\n"),
        ("notes.xml", "<x/>"),
        ("Cities/readme.md", "x"),
        ("More.json", "[{\"PartitionKey\":\"a\",\"RowKey\":\"1\"}]"),
    ];
    files
        .iter()
        .for_each(|(name, text)| std::fs::write(site.folder.join("in").join(name), text).expect("a file"));
    let output = site.run(&["copy", "in", "dump:out"]);
    assert!(output.status.success() && entities(&site).len() == 2, "{output:?}");
    for name in ["notes.xml: not read", "Cities: not read"] {
        assert!(said(&output).contains(name), "{output:?}");
    }
    assert!(!said(&output).contains("People.tsv"), "{output:?}");
}

#[test]
fn utf_16_is_named() {
    let text = "PartitionKey,RowKey\r\na,1\r\n";
    let little: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let marked = [&[0xff, 0xfe][..], &little].concat();
    for content in [marked, little] {
        refused("People.csv", &content, &["is UTF-16", "iconv"]);
    }
}

#[test]
fn a_binary_may_have_the_name_of_a_list() {
    let lines = "{\"value\":[1,2],\"PartitionKey\":\"a\",\"RowKey\":\"1\"}\n\
        {\"items\":[],\"PartitionKey\":\"a\",\"RowKey\":\"2\"}\n{\"value\":1.50,\"PartitionKey\":\"a\",\"RowKey\":\"3\"}\n";
    let read = told("People.json", lines, &[]);
    let values = [&read[0]["value"], &read[1]["items"], &read[2]["value"]];
    assert_eq!(values, [&json!("AQI="), &json!(""), &json!(1.5)]);
    assert_eq!(told("People.json", r#"{"value":[]}"#, &[]), Vec::<Value>::new());
    let next = r#"{"value":[{"PartitionKey":"a","RowKey":"1"}],"odata.nextLink":"x"}"#;
    refused("People.json", next.as_bytes(), &["another file"]);
}

/// A workspace with these documents in its table People.
fn workspace(documents: &str) -> String {
    format!(
        r#"{{"collections":[{{"name":"$TABLES_COLLECTION$","data":[{{"account":"devstoreaccount1","table":"People"}}]}},
        {{"name":"devstoreaccount1$People","data":[{documents}]}}]}}"#
    )
}

#[test]
fn a_lone_surrogate_rejects_its_entity_alone() {
    let entity = |row: u32, text: &str| {
        format!(r#"{{"PartitionKey":"a","RowKey":"{row}","properties":{{"S":"{text}"}}}}"#)
    };
    let content = workspace(&[entity(1, "x"), entity(2, r"\ud800"), entity(3, "y")].join(","));
    let (reasons, copied) = rejected("__azurite_db_table__.json", &content);
    assert_eq!((reasons.as_slice(), copied), (&[r"S: '\ud800' is not a String".to_owned()][..], 2));
    let lines = "{\"PartitionKey\":\"a\",\"RowKey\":\"1\",\"S\":\"\\ud800\"}\n{\"PartitionKey\":\"a\",\"RowKey\":\"2\"}\n";
    assert_eq!(rejected("People.json", lines).1, 1);
}

#[test]
fn a_workspace_without_the_account_is_not_copied_as_nothing() {
    let (output, _) =
        copied("__azurite_db_table__.json", workspace("").as_bytes(), &["--from-account", "other"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(said(&output).contains("devstoreaccount1"), "{output:?}");
    refused("__azurite_db_table__.json", b"{}", &["no list of tables"]);
    refused("__azurite_db_table__.json", (workspace("") + "x").as_bytes(), &["follows"]);
}

#[test]
fn what_is_rejected_on_reading_is_counted_with_its_property_and_value() {
    let site = Site::sqlite();
    let entity = |row: &str, more: &str| format!("{{\"PartitionKey\":\"a\",\"RowKey\":\"{row}\"{more}}}\n");
    let file = [
        entity("1", ""),
        entity("2", ",\"T@odata.type\":\"Edm.DateTime\",\"T\":\"01/02/2020 03:04:05\""),
        entity("3", ",\"N@odata.type\":\"Edm.Int32\",\"N\":\"null\""),
        entity("4", ",\"D@odata.type\":\"Edm.Double\",\"D\":24.580338977940386,\"a-b\":1"),
        entity("5", ",\"A@odata.type\":\"Edm.Decimal\",\"A\":1"),
        entity("6/7", ""),
    ];
    std::fs::write(site.folder.join("People.json"), file.concat()).expect("a file");
    let arguments = ["copy", "People.json", "dump:out", "--rejects", "rejects.jsonl", "--json"];
    for dump in ["dump:out", "dump:again"] {
        let output = site.run(&[&arguments[..2], &[dump], &arguments[3..]].concat());
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        let summary: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!((&summary["rejected"], &summary["report"]), (&json!(5), &json!("copy")));
        assert_eq!(summary["tables"]["People"], json!({ "copied": 1, "unchanged": 0, "rejected": 5 }));
        assert_eq!(summary["rejects"], "rejects.jsonl");
        // Each run begins the file anew.
        let reasons: Vec<Value> = lines(&site).into_iter().map(|mut line| line["reason"].take()).collect();
        assert_eq!(reasons[..2], ["T: '01/02/2020 03:04:05' is not a DateTime", "N: 'null' is not an Int32"]);
        let starts = [
            "a-b: The property name",
            "A: \"Edm.Decimal\" is not a type",
            "OutOfRangeInput: The 'RowKey' parameter of value '6/7'",
        ];
        for (reason, start) in reasons[2..].iter().zip(starts) {
            assert!(reason.as_str().is_some_and(|reason| reason.starts_with(start)), "{reasons:?}");
        }
    }
    let text = std::fs::read_to_string(site.folder.join("rejects.jsonl")).expect("a file");
    assert!(text.contains("24.580338977940386"), "{text}");
    let output = site.run(&["copy", "People.json", "dump:third"]);
    assert!(
        String::from_utf8_lossy(&output.stdout)
            .contains("1 entities of 1 tables copied, 0 already there, 5 rejected"),
        "{output:?}"
    );
    // A file of something else stays.
    let output = site.run(&["copy", "People.json", "dump:fourth", "--rejects", "People.json"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert_eq!(std::fs::read_to_string(site.folder.join("People.json")).expect("a file"), file.concat());
}

#[test]
fn each_copy_with_a_state_has_a_file_of_rejected_entities_of_its_own() {
    let site = Site::sqlite();
    for state in ["one", "two"] {
        let file = format!("[{{\"PartitionKey\":\"a\",\"RowKey\":\"{state}/\"}}]");
        std::fs::write(site.folder.join("People.json"), file).expect("a file");
        let output =
            site.run(&["copy", "People.json", &format!("dump:of-{state}"), "--state", state, "--json"]);
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        let summary: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(summary["rejects"], format!("{state}.rejects.jsonl"));
    }
    for state in ["one", "two"] {
        let text =
            std::fs::read_to_string(site.folder.join(format!("{state}.rejects.jsonl"))).expect("a file");
        assert!(text.contains(&format!("{state}/")) && text.lines().count() == 1, "{text}");
    }
}

#[test]
fn each_object_of_json_says_what_it_reports() {
    let site = Site::sqlite();
    std::fs::write(site.folder.join("People.json"), "[{\"PartitionKey\":\"a\",\"RowKey\":\"1\"}]")
        .expect("a file");
    let arguments =
        ["copy", "People.json", "sqlite://to.db", "--json", "--verify", "--delete-extra", "--yes"];
    let output = site.run(&arguments);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let reports: Vec<Value> =
        serde_json::Deserializer::from_str(&text).into_iter().map(|value| value.expect("JSON")).collect();
    let names: Vec<&Value> = reports.iter().map(|report| &report["report"]).collect();
    assert_eq!(names, ["copy", "deleteExtra", "verify"]);
}

#[test]
fn rows_of_csv_without_any_value_are_no_entities() {
    let read =
        told("People.csv", "PartitionKey,RowKey,A\r\na,1,x\r\n,,\r\n,,\r\n", &["2 rows have no value"]);
    assert_eq!(read.len(), 1);
    // Keys may be empty texts.
    assert_eq!(told("People.csv", "PartitionKey,RowKey,A\n\"\",\"\",\n", &[]).len(), 1);
}

#[test]
fn what_powershell_adds_to_an_entity_is_no_property() {
    let types = "#TYPE System.Management.Automation.PSCustomObject\r\n";
    let names = "\"A\",\"PartitionKey\",\"RowKey\",\"TableTimestamp\",\"Etag\"\r\n";
    let tag = "W/\"\"datetime'2020-01-01T00%3A00%3A00Z'\"\"";
    let csv = format!("{types}{names}\"x\",\"a\",\"1\",\"1/31/2020 3:04:05 PM +00:00\",\"{tag}\"\r\n");
    let left_out = "People.Timestamp: 1 values are not dates, and were left out";
    let expected = [json!({ "_table": "People", "PartitionKey": "a", "RowKey": "1", "A": "x" })];
    assert_eq!(told("People.csv", &csv, &[left_out]), expected);
    let json = r#"[{"A":"x","PartitionKey":"a","RowKey":"1","TableTimestamp":{"DateTime":"\/Date(1580483045000)\/"},
        "Etag":"W/\"datetime'2020-01-01T00%3A00%3A00Z'\""}]"#;
    assert_eq!(told("People.json", json, &[left_out]), expected);
    assert_eq!(told("People.csv", "sep=;\r\nPartitionKey;RowKey;A\r\na;1;x\r\n", &[]), expected);
}

#[test]
fn an_etag_is_a_property_unless_it_is_that_of_the_entity() {
    let entity = |time: &str| {
        let read = told(
            "People.json",
            &format!(
                r#"[{{"PartitionKey":"a","RowKey":"1","Timestamp":"{time}",
                "etag":"W/\"datetime'2020-01-02T03%3A04%3A05.1234567Z'\""}}]"#
            ),
            &[],
        );
        read[0].get("etag").is_some()
    };
    assert!(!entity("2020-01-02T03:04:05.123456+00:00"));
    assert!(entity("2020-01-02T03:04:06Z") && entity("yesterday"));
}

#[test]
fn a_zero_with_a_sign_is_a_double_and_documents_without_a_key_are_rejected() {
    let read = told("People.json", r#"[{"PartitionKey":"a","RowKey":"1","N":-0}]"#, &[]);
    assert_eq!((&read[0]["N"], &read[0]["N@odata.type"]), (&json!(-0.0), &json!("Edm.Double")));
    let lines = r#"{"RowKey":"1"}
        {"PartitionKey":"a","RowKey":"2"}
        {"N":1}"#;
    let (reasons, copied) = rejected("People.json", lines);
    assert_eq!((reasons.len(), copied), (2, 1), "{reasons:?}");
}

#[test]
fn pipes_and_empty_files_are_not_taken_for_files_without_entities() {
    for empty in [&b""[..], b" \n", b"\xef\xbb\xbf"] {
        refused("People.json", empty, &["People.json: is empty"]);
    }
    let site = Site::sqlite();
    let pipe = |path: PathBuf| {
        let made = std::process::Command::new("mkfifo").arg(path).status().expect("mkfifo");
        assert!(made.success());
    };
    pipe(site.folder.join("People.json"));
    let output = site.run(&["copy", "People.json", "dump:out"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(said(&output).contains("is not a regular file"), "{output:?}");
    std::fs::create_dir(site.folder.join("in")).expect("a folder");
    pipe(site.folder.join("in/People.json"));
    std::fs::write(site.folder.join("in/Cities.json"), "[{\"PartitionKey\":\"a\",\"RowKey\":\"1\"}]")
        .expect("a file");
    let output = site.run(&["copy", "in", "dump:out"]);
    assert!(output.status.success() && said(&output).contains("it is not a regular file"), "{output:?}");
}

#[test]
fn a_list_that_names_another_page_is_not_complete() {
    for link in ["odata.nextLink", "@odata.nextLink"] {
        let list = format!("{{\"value\":[],\"{link}\":\"People?next\"}}");
        refused("People.json", list.as_bytes(), &["continues in another file"]);
    }
}
