//! Queries in the order of keys that `$orderby` names, for accounts with extended queries.

use std::sync::OnceLock;

use rowhouse::testing::Server;
use serde_json::json;

use crate::support::postgres::fresh_database;
use crate::support::*;
use crate::testing::client_of;

const DESCENDING: &str = "$orderby=PartitionKey%20desc,RowKey%20desc";
const PARTITIONS: [&str; 4] = ["a", "b", "bb", "é"];
const ROWS: [&str; 5] = ["", "1", "2", "22", "漢"];

/// Runs a test on a server with each kind of database.
fn on_each(test: impl Fn(&Client)) {
    static SERVERS: OnceLock<[Server; 2]> = OnceLock::new();
    let servers = SERVERS.get_or_init(|| {
        ["sqlite::memory:".to_owned(), fresh_database()]
            .map(|url| Server::builder().database_url(url).extended_queries().start().expect("a server"))
    });
    for server in servers {
        test(&client_of(&server.connection_string()));
    }
}

/// A table with each pair of keys.
fn grid(client: &Client) -> Table<'_> {
    let t = client.table();
    for (n, partition) in PARTITIONS.iter().enumerate() {
        let entity = |at: usize| with_keys(partition, ROWS[at], json!({ "N": n * ROWS.len() + at }));
        let batch = (0..ROWS.len()).fold(Batch::new(), |batch, at| batch.insert(&t, &entity(at)));
        batch.commit(client);
    }
    t
}

#[test]
fn descending_pages_are_the_ascending_ones_reversed() {
    on_each(|client| {
        let t = grid(client);
        for filter in [
            "",
            "PartitionKey eq 'b'",
            "PartitionKey gt 'a' and PartitionKey lt 'bb'",
            "PartitionKey eq 'a' or PartitionKey eq 'é' and RowKey ge '2'",
            "PartitionKey eq 'b' and RowKey eq '2' or PartitionKey eq 'a' and RowKey eq '1'",
            "N gt 3 and N lt 17",
            "PartitionKey ge 'b' and N ne 12",
            "PartitionKey eq 'a' and PartitionKey eq 'b'",
        ] {
            let filter = format!("$filter={}", escape(filter));
            let mut ascending = t.pages(&filter).concat();
            ascending.reverse();
            for top in ["", "&$top=1", "&$top=3", "&$top=1000", "&$select=PartitionKey,RowKey&$top=2"] {
                let descending = t.pages(&format!("{DESCENDING}&{filter}{top}")).concat();
                assert_eq!(keys_of(&descending), keys_of(&ascending), "{filter}{top}");
            }
        }
        assert_eq!(keys_of(&rows(t.query(&format!("?{DESCENDING}&$top=0")).expect_json())), []);
    });
}

#[test]
fn the_row_key_alone_orders_one_partition() {
    on_each(|client| {
        let t = grid(client);
        let descending = |filter: &str| format!("?$orderby=RowKey%20desc&$filter={}", escape(filter));
        let newest = t.query(&format!("{}&$top=1", descending("PartitionKey eq 'b'")));
        assert_eq!(keys_of(&rows(newest.expect_json())), [("b".to_owned(), "漢".to_owned())]);
        for fixed in [
            "PartitionKey eq 'b' and N gt 6",
            "PartitionKey ge 'b' and PartitionKey le 'b' and RowKey gt ''",
            "PartitionKey eq 'b' and (RowKey eq '1' or RowKey eq '2')",
            "PartitionKey eq 'a' and PartitionKey eq 'b'",
        ] {
            let mut expected = keys_of(&rows(t.filter(fixed).expect_json()));
            expected.reverse();
            assert_eq!(keys_of(&rows(t.query(&descending(fixed)).expect_json())), expected, "{fixed}");
        }
        for open in ["", "N gt 6", "PartitionKey ge 'b'", "PartitionKey eq 'b' or PartitionKey eq 'a'"] {
            t.query(&descending(open)).refused(NOT_IMPLEMENTED);
        }
        let partition = format!("/{}(PartitionKey='bb')?$orderby=RowKey%20desc", t.name);
        let found = keys_of(&rows(client.get(&partition).expect_json()));
        assert_eq!(found, ROWS.iter().rev().map(|row| ("bb".into(), (*row).into())).collect::<Vec<_>>());
    });
}

#[test]
fn ascending_forms_are_answered_as_without() {
    on_each(|client| {
        let t = grid(client);
        let answered = |options: &str| {
            let answer = t.query(&format!("?$top=3&{options}")).expect(200);
            (answer.text().to_owned(), next_page(&answer))
        };
        let plain = answered("");
        for order in ["PartitionKey,RowKey", "PartitionKey asc,RowKey asc", "PartitionKey asc, RowKey"] {
            assert_eq!(answered(&format!("$orderby={}", escape(order))), plain, "{order}");
        }
        let filter = "$filter=PartitionKey%20eq%20'b'";
        for order in ["RowKey", "RowKey%20asc"] {
            assert_eq!(answered(&format!("{filter}&$orderby={order}")), answered(filter), "{order}");
        }
    });
}

#[test]
fn what_is_no_query_of_entities_has_no_order() {
    on_each(|client| {
        let t = grid(client);
        t.query("?$orderby=PartitionKey%20desc").refused(NOT_IMPLEMENTED);
        client.get(&format!("/Tables?{DESCENDING}")).refused(NOT_IMPLEMENTED);
        client.get(&format!("{}?{DESCENDING}", t.path("a", "1"))).refused(NOT_IMPLEMENTED);
        client.get(&format!("{}?comp=acl&{DESCENDING}", t.set())).expect(501);
        let insert = client.request("POST", &format!("{}?{DESCENDING}", t.set()));
        insert.json(&with_keys("a", "new", json!({}))).send().refused(NOT_IMPLEMENTED);
    });
}

/// The start and the end of a range of a SAS, and what is in it.
type Range = ((Option<&'static str>, Option<&'static str>), (Option<&'static str>, Option<&'static str>));

#[test]
fn a_descending_walk_stays_in_the_range_of_a_sas() {
    let ranges: [Range; 6] = [
        ((Some("b"), None), (Some("b"), None)),
        ((Some("b"), Some("1")), (Some("b"), Some("22"))),
        ((Some("b"), None), (None, None)),
        ((None, None), (Some("b"), None)),
        ((Some("a"), Some("2")), (Some("bb"), Some("1"))),
        ((Some("b"), Some("3")), (Some("b"), Some("9"))),
    ];
    on_each(|client| {
        let t = grid(client);
        let tokens: Vec<String> = [1, 6, 11, 19]
            .iter()
            .map(|count| next_page(&t.query(&format!("?{DESCENDING}&$top={count}"))).expect("there is more"))
            .collect();
        for (start, end) in ranges {
            let bearer = Sas::table(&t.name, "r").range(start, end).of(client);
            let there = Table::new(&bearer, &t.name);
            for filter in ["", "N ge 0", "PartitionKey ge 'a'", "PartitionKey eq 'b' or PartitionKey eq 'é'"]
            {
                let filter = format!("$filter={}", escape(filter));
                let mut expected = keys_of(&there.pages(&filter).concat());
                expected.reverse();
                let found = keys_of(&there.pages(&format!("{DESCENDING}&$top=2&{filter}")).concat());
                assert_eq!(found, expected, "{start:?} {end:?} {filter}");
            }
            // Tokens of a holder of the key begin before, inside and after the range.
            let mut inside = keys_of(&there.pages("").concat());
            inside.reverse();
            for token in &tokens {
                let after = keys_of(&rows(t.query(&format!("?{DESCENDING}{token}")).expect_json()));
                let expected: Vec<_> = inside.iter().filter(|key| after.contains(key)).cloned().collect();
                let found = keys_of(&there.pages(&format!("{DESCENDING}{token}")).concat());
                assert_eq!(found, expected, "{start:?} {end:?} {token}");
            }
        }
    });
}
