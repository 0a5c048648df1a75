//! Doubles keep every bit, whichever way they come and go.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::copying::Served;
use super::*;
use crate::promises::chance::Chance;
use crate::support::atom;

/// Properties of an entity.
const MANY: usize = 250;

/// Finite doubles of random bits.
fn random_doubles() -> Vec<f64> {
    let mut chance = Chance::of("doubles");
    let bits = std::iter::from_fn(|| Some(f64::from_bits(chance.next())));
    bits.filter(|value| value.is_finite()).take(MANY).collect()
}

fn members(doubles: &[f64], of: impl Fn(String, f64) -> String) -> String {
    let members = doubles.iter().enumerate().map(|(at, value)| of(format!("D{at:03}"), *value));
    members.collect::<Vec<_>>().join(",")
}

/// The same entity in each format, with the file's name, which tells its table.
fn files(doubles: &[f64]) -> Vec<(&'static str, String)> {
    let untyped = members(doubles, |name, value| format!("\"{name}\":{value:e}"));
    let long = members(doubles, |name, value| {
        format!("\"{name}@odata.type\":\"Edm.Double\",\"{name}\":{value:.16e}")
    });
    let texts = members(doubles, |name, value| {
        format!("\"{name}\":{{\"{name}\":\"{value:?}\",\"EdmType\":\"Double\"}}")
    });
    let keys = "\"PartitionKey\":\"p\",\"RowKey\":\"r\"";
    let workspace = format!(
        r#"{{"collections":[{{"name":"$TABLES_COLLECTION$","data":[{{"account":"devstoreaccount1","table":"Workspace"}}]}},
        {{"name":"devstoreaccount1$Workspace","data":[{{{keys},"properties":{{{long}}}}}]}}]}}"#
    );
    let header = members(doubles, |name, _| format!("{name},{name}@type"));
    let values = members(doubles, |_, value| format!("{value:?},Double"));
    vec![
        ("Untyped.json", format!("[{{{keys},{untyped}}}]")),
        ("Long.json", format!("{{\"value\":[{{{keys},{long}}}]}}")),
        ("Texts.json", format!("{{{keys},{texts}}}\n")),
        ("__azurite_db_table__.json", workspace),
        ("Typed.csv", format!("PartitionKey,RowKey,{header}\np,r,{values}\n")),
        (
            "Plain.csv",
            format!("PartitionKey,RowKey,{header}\np,r,{values}\n")
                .replace("Double", "")
                .replace("@type", "_"),
        ),
    ]
}

/// The doubles of each table of a dump.
fn dumped(site: &Site, dump: &str) -> BTreeMap<String, Vec<u64>> {
    let mut found = BTreeMap::new();
    for table in std::fs::read_dir(site.folder.join(dump)).expect("a folder") {
        let table = table.expect("an entry").path();
        let Some(part) = std::fs::read_dir(&table).into_iter().flatten().next() else { continue };
        let part = std::fs::File::open(part.expect("an entry").path()).expect("a part");
        let text = String::from_utf8(zstd::decode_all(part).expect("zstd")).expect("UTF-8");
        let name = table.file_name().expect("a name").to_string_lossy().into_owned();
        found.insert(name, bits(&text));
    }
    found
}

/// The doubles of an entity, from the text of the numbers.
fn bits(entity: &str) -> Vec<u64> {
    let members: BTreeMap<String, &RawValue> = serde_json::from_str(entity).expect("an entity");
    let doubles = members.iter().filter(|(name, _)| name.len() == 4);
    doubles.map(|(_, raw)| raw.get().trim_matches('"').parse::<f64>().expect("a double").to_bits()).collect()
}

#[test]
fn doubles_of_random_bits_come_through_every_format_and_path() {
    for site in Site::both() {
        let doubles = random_doubles();
        let expected: Vec<u64> = doubles.iter().map(|value| value.to_bits()).collect();
        let served = Served::new(site);
        let (site, place) = (&served.site, served.connection_string());
        let types = members(&doubles, |name, _| format!("{name}=Double"));
        for (file, content) in files(&doubles) {
            site.write(file, content);
            let types = ["--type", &types];
            let more = if file == "Plain.csv" { &types[..] } else { &[] };
            let azurite = format!("{file}#devstoreaccount1");
            let from = if file.contains("azurite") { azurite.as_str() } else { file };
            let output = site.run(&[&["copy", from, &place], more].concat());
            assert!(output.status.success(), "{file}: {output:?}");
        }
        // Bodies of requests, in both formats.
        let client = served.client();
        for table in ["Body", "Batch", "Entry"] {
            client.create_table(table).expect(201);
        }
        let body = members(&doubles, |name, value| {
            format!("\"{name}@odata.type\":\"Edm.Double\",\"{name}\":{value:?}")
        });
        let body = format!("{{\"PartitionKey\":\"p\",\"RowKey\":\"r\",{body}}}");
        let echo = client.request("POST", "/Body").raw_json(body.as_str()).send().expect(201);
        assert_eq!(bits(echo.text()), expected);
        let accept = ["Content-Type: application/json", "Accept: application/json;odata=minimalmetadata"];
        Batch::new().operation("POST", &client.url("/Batch"), &accept, &body).commit(&client);
        let entry =
            members(&doubles, |name, value| format!("<d:{name} m:type=\"Edm.Double\">{value:e}</d:{name}>"));
        let entry = atom::keys("p", "r") + &entry.replace(">,<", "><");
        atom::sending(&client, Some("2013-08-15"), "POST", "/Entry", &entry).send().expect(201);
        let printed =
            atom::request(&client, Some("2013-08-15"), "GET", "/Body(PartitionKey='p',RowKey='r')").send();
        let printed = printed.expect(200);
        let texts = printed.text().split("m:type=\"Edm.Double\">").skip(1);
        let texts =
            texts.map(|text| text.split('<').next().expect("a text").parse::<f64>().expect("a double"));
        assert_eq!(texts.map(f64::to_bits).collect::<Vec<_>>(), expected);
        // Over HTTP into a dump, from there into a database and out of it.
        for (from, to) in [
            (place.as_str(), "dump:out"),
            ("dump:out", "sqlite://other.db"),
            ("sqlite://other.db", "dump:again"),
        ] {
            let output = site.run(&["copy", from, to]);
            assert!(output.status.success(), "{from}: {output:?}");
        }
        for dump in ["out", "again"] {
            let found = dumped(site, dump);
            assert_eq!(found.len(), 9, "{found:?}");
            for (table, found) in found {
                assert_eq!(found, expected, "{table} in {dump}");
            }
        }
    }
}
