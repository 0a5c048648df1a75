//! What files leave open, and what they have wrong: read rightly, refused, or told before anything is written.

use serde_json::json;

use super::files::entities;
use super::*;

/// Copies a file to a dump; returns the output and the site.
fn copied(file: &str, content: &[u8], more: &[&str]) -> (Output, Site) {
    let site = Site::sqlite();
    site.write(file, content);
    let output = site.run(&[&["copy", file, "dump:out"], more].concat());
    (output, site)
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
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
    let (output, site) = copied(file, content.as_bytes(), &["--state", "s", "--json"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let reasons = reasons(&site);
    let summary: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(summary["rejected"], reasons.len(), "{summary}");
    (reasons, entities(&site).len())
}

fn reasons(site: &Site) -> Vec<String> {
    let line = |line: &str| serde_json::from_str::<Value>(line).expect("JSON");
    let text = site.read("s.rejects.jsonl");
    text.lines().map(|text| line(text)["reason"].as_str().expect("text").to_owned()).collect()
}

/// A workspace of Azurite with these documents in its table People.
fn workspace(documents: &str) -> String {
    format!(
        r#"{{"collections":[{{"name":"$TABLES_COLLECTION$","data":[{{"account":"devstoreaccount1","table":"People"}}]}},
        {{"name":"devstoreaccount1$People","data":[{documents}]}}]}}"#
    )
}

#[test]
fn what_is_no_whole_file_is_refused() {
    let wide: Vec<u8> = "PartitionKey,RowKey\r\na,1\r\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let marked = [&[0xff, 0xfe][..], &wide].concat();
    let followed = workspace("") + "x";
    let azurite = "__azurite_db_table__.json";
    for (file, content, words) in [
        ("People.csv", &b"PartitionKey,RowKey,S\na,1,x\na,2,\"y"[..], &["within quotes"][..]),
        ("People.csv", b"PartitionKey,RowKey,A,A\na,1,x,y\n", &["the column A occurs twice"]),
        ("People.csv", &marked, &["is UTF-16", "iconv"]),
        ("People.csv", &wide, &["is UTF-16", "iconv"]),
        ("People.json", b"[1,", &["People.json"]),
        ("People.json", b"", &["People.json: is empty"]),
        ("People.json", b" \n", &["People.json: is empty"]),
        ("People.json", b"\xef\xbb\xbf", &["People.json: is empty"]),
        ("People.json", br#"{"value":[],"odata.nextLink":"x"}"#, &["continues in another file"]),
        ("People.json", br#"{"value":[],"@odata.nextLink":"x"}"#, &["continues in another file"]),
        (azurite, b"{}", &["no list of tables"]),
        (azurite, followed.as_bytes(), &["follows"]),
    ] {
        let (output, site) = copied(file, content, &[]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        words.iter().for_each(|word| assert!(said(&output).contains(word), "{word} in {output:?}"));
        assert!(!site.folder.join("out/manifest.json").exists());
    }
    let site = Site::sqlite();
    site.write(azurite, workspace(""));
    let words = ["the account other has no tables", "json#devstoreaccount1"];
    site.ends(&["copy", &format!("{azurite}#other"), "dump:out"], 2, &words);
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
fn doubtful_rows_are_read_or_rejected_one_by_one() {
    told("People.csv", "PartitionKey,RowKey,S\na,1\na,2,x\n", &["1 rows have fewer values"]);
    let read = told("People.csv", "PartitionKey,RowKey,A\ra,1,x\ra,2,\"y\rz\"\r", &[]);
    assert_eq!((&read[0]["A"], &read[1]["A"]), (&json!("x"), &json!("y\rz")));
    let blank = "PartitionKey,RowKey,A\r\na,1,x\r\n,,\r\n,,\r\n";
    assert_eq!(told("People.csv", blank, &["2 rows have no value"]).len(), 1);
    // Keys may be empty texts.
    assert_eq!(told("People.csv", "PartitionKey,RowKey,A\n\"\",\"\",\n", &[]).len(), 1);
    // The last value may have lost its end.
    for cut in ["a,2", "a,2,", "a,2,y", "a,2,\"y\""] {
        let (reasons, copied) = rejected("People.csv", &format!("PartitionKey,RowKey,S\na,1,x\n{cut}"));
        assert!(reasons[0].contains("the file ends inside this row") && copied == 1, "{reasons:?}");
    }
    let surrogate = |row: u32, text: &str| {
        format!(r#"{{"PartitionKey":"a","RowKey":"{row}","properties":{{"S":"{text}"}}}}"#)
    };
    let surrogates = [surrogate(1, "x"), surrogate(2, r"\ud800"), surrogate(3, "y")].join(",");
    for (file, content, starts, whole) in [
        ("People.csv", "PartitionKey,RowKey\na,1\na,2,3\n", &[""][..], 1),
        (
            "People.json",
            r#"[{"PartitionKey":"a","RowKey":"1","A":1,"A":2},
            {"PartitionKey":"a","RowKey":"2","N":123456789012345678901234567890},
            {"PartitionKey":"a","RowKey":"3","N":9223372036854775808},
            {"PartitionKey":"a","RowKey":"4","N":9223372036854775807}]"#,
            &[
                "A stands twice",
                "N: 123456789012345678901234567890 is beyond Int64",
                "N: 9223372036854775808 is beyond Int64",
            ],
            1,
        ),
        ("__azurite_db_table__.json", &workspace(&surrogates), &[r"S: '\ud800' is not a String"], 2),
        (
            "People.json",
            "{\"PartitionKey\":\"a\",\"RowKey\":\"1\",\"S\":\"\\ud800\"}\n{\"PartitionKey\":\"a\",\"RowKey\":\"2\"}\n",
            &[""],
            1,
        ),
        (
            "People.json",
            "{\"RowKey\":\"1\"}\n{\"PartitionKey\":\"a\",\"RowKey\":\"2\"}\n{\"N\":1}\n",
            &["", ""],
            1,
        ),
    ] {
        let (reasons, copied) = rejected(file, content);
        assert_eq!((reasons.len(), copied), (starts.len(), whole), "{reasons:?}");
        assert!(reasons.iter().zip(starts).all(|(reason, start)| reason.starts_with(start)), "{reasons:?}");
    }
}

#[test]
fn values_have_the_type_that_their_file_tells() {
    let read = told("People.json", r#"[{"PartitionKey":"a","RowKey":"1","N":-0}]"#, &[]);
    assert_eq!((&read[0]["N"], &read[0]["N@odata.type"]), (&json!(-0.0), &json!("Edm.Double")));
    // A type that comes in a later row holds for all.
    let read = told("People.csv", "PartitionKey,RowKey,N,N@type\na,1,5,\na,2,,\na,3,6,Int32\n", &[]);
    assert_eq!((&read[0]["N"], &read[2]["N"]), (&json!(5), &json!(6)));
    // A binary may have the name of a list.
    let lines = "{\"value\":[1,2],\"PartitionKey\":\"a\",\"RowKey\":\"1\"}\n\
        {\"items\":[],\"PartitionKey\":\"a\",\"RowKey\":\"2\"}\n{\"value\":1.50,\"PartitionKey\":\"a\",\"RowKey\":\"3\"}\n";
    let read = told("People.json", lines, &[]);
    let values = [&read[0]["value"], &read[1]["items"], &read[2]["value"]];
    assert_eq!(values, [&json!("AQI="), &json!(""), &json!(1.5)]);
    assert_eq!(told("People.json", r#"{"value":[]}"#, &[]), Vec::<Value>::new());
}

#[test]
fn other_files_of_a_folder_are_told() {
    let site = Site::sqlite();
    site.write("in/People.tsv", "PartitionKey\tRowKey\na\t1\n");
    site.write("in/notes.xml", "<x/>");
    site.write("in/Cities/readme.md", "x");
    site.write("in/More.json", "[{\"PartitionKey\":\"a\",\"RowKey\":\"1\"}]");
    let pipe = |file: &str| {
        let made = std::process::Command::new("mkfifo").arg(site.folder.join(file)).status();
        assert!(made.expect("mkfifo").success());
    };
    pipe("in/Pipe.json");
    let words = ["notes.xml: not read", "Cities: not read", "it is not a regular file"];
    let output = site.ends(&["copy", "in", "dump:out"], 0, &words);
    assert!(!said(&output).contains("People.tsv") && entities(&site).len() == 2, "{output:?}");
    pipe("People.json");
    site.ends(&["copy", "People.json", "dump:out"], 1, &["is not a regular file"]);
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
    site.write("People.json", file.concat());
    let arguments = ["copy", "People.json", "dump:out", "--state", "s", "--json"];
    for dump in ["dump:out", "dump:again"] {
        let output = site.ends(&[&arguments[..2], &[dump], &arguments[3..]].concat(), 3, &[]);
        let summary: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!((&summary["rejected"], &summary["report"]), (&json!(5), &json!("copy")));
        assert_eq!(summary["tables"]["People"], json!({ "copied": 1, "unchanged": 0, "rejected": 5 }));
        assert_eq!(summary["rejects"], "s.rejects.jsonl");
        // Each run begins the file anew.
        let reasons = reasons(&site);
        let starts = [
            "T: '01/02/2020 03:04:05' is not a DateTime",
            "N: 'null' is not an Int32",
            "a-b: The property name",
            "A: \"Edm.Decimal\" is not a type",
            "OutOfRangeInput: The 'RowKey' parameter of value '6/7'",
        ];
        assert_eq!(reasons.len(), starts.len(), "{reasons:?}");
        assert!(reasons.iter().zip(starts).all(|(reason, start)| reason.starts_with(start)), "{reasons:?}");
    }
    let text = site.read("s.rejects.jsonl");
    assert!(text.contains("24.580338977940386"), "{text}");
    let words = ["1 entities of 1 tables copied, 0 already there, 5 rejected"];
    site.ends(&["copy", "People.json", "dump:third"], 3, &words);
    // A file of something else stays.
    site.write("other.rejects.jsonl", "[]");
    site.ends(&["copy", "People.json", "dump:fourth", "--state", "other"], 2, &["other.rejects.jsonl"]);
    assert_eq!(site.read("other.rejects.jsonl"), "[]");
}

#[test]
fn each_copy_with_a_state_has_a_file_of_rejected_entities_of_its_own() {
    let site = Site::sqlite();
    for state in ["one", "two"] {
        site.write("People.json", format!("[{{\"PartitionKey\":\"a\",\"RowKey\":\"{state}/\"}}]"));
        let dump = format!("dump:of-{state}");
        let output = site.ends(&["copy", "People.json", &dump, "--state", state, "--json"], 3, &[]);
        let summary: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(summary["rejects"], format!("{state}.rejects.jsonl"));
    }
    let text = site.read("one.rejects.jsonl");
    assert!(text.contains("one/") && text.lines().count() == 1, "{text}");
}

#[test]
fn each_object_of_json_says_what_it_reports() {
    let site = Site::sqlite();
    site.write("People.json", "[{\"PartitionKey\":\"a\",\"RowKey\":\"1\"}]");
    let arguments = ["copy", "People.json", "sqlite://to.db", "--json", "--verify", "--mirror", "--yes"];
    let output = site.ends(&arguments, 0, &[]);
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let reports: Vec<Value> =
        serde_json::Deserializer::from_str(&text).into_iter().map(|value| value.expect("JSON")).collect();
    let names: Vec<&Value> = reports.iter().map(|report| &report["report"]).collect();
    assert_eq!(names, ["copy", "mirror", "verify"]);
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
        let tag = r#""W/\"datetime'2020-01-02T03%3A04%3A05.1234567Z'\"""#;
        let file = format!(r#"[{{"PartitionKey":"a","RowKey":"1","Timestamp":"{time}","etag":{tag}}}]"#);
        told("People.json", &file, &[])[0].get("etag").is_some()
    };
    assert!(!entity("2020-01-02T03:04:05.123456+00:00"));
    assert!(entity("2020-01-02T03:04:06Z") && entity("yesterday"));
}
