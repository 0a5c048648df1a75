//! Filters that the service lacks, for accounts that have them; for all others they are refused as before.

use serde_json::json;

use crate::support::batch::{post, query_batch};
use crate::support::*;

cases! {
    functions_lists_and_null_find_what_they_say, text_is_compared_by_code_points_and_folds_ascii_alone,
    the_characters_that_are_stored_escaped_are_found, a_prefix_of_keys_is_a_range_that_pages_walk,
    filters_of_tables_ignore_case, no_filter_leaves_the_range_of_a_signature,
    a_query_in_a_batch_has_the_same_language, operand_kinds_are_checked, each_value_of_a_list_is_a_comparison,
    accounts_without_them_are_answered_as_before,
}

fn people(client: &Client) -> Table<'_> {
    let t = client.table();
    for (row, name) in [("1", "Smith"), ("2", "smart"), ("3", "Jones"), ("4", "O'Neil"), ("5", "")] {
        t.seed(with_keys("p", row, json!({ "Name": name })));
    }
    t.seed(with_keys("q", "6", json!({ "Name": 5 })));
    t.seed(with_keys("q", "7", json!({ "Other": "x" })));
    t
}

fn functions_lists_and_null_find_what_they_say(client: &Client) {
    let client = client.extended();
    let t = people(&client);
    for (filter, found) in [
        ("startswith(Name,'Sm')", "1"),
        ("startswith(Name,'')", "1,2,3,4,5"),
        ("not startswith(Name,'')", "6,7"),
        ("startswith(Name,'S') eq false", "2,3,4,5,6,7"),
        ("endswith(Name,'s')", "3"),
        ("contains(Name,'m')", "1,2"),
        ("substringof('''N',Name) eq true", "4"),
        ("startswith(tolower(Name),'sm')", "1,2"),
        ("toupper(Name) eq 'JONES'", "3"),
        ("tolower(Name) gt 'o'", "1,2,4"),
        ("tolower(Name) ne 'jones'", "1,2,4,5"),
        ("Name in ('smart','Jones','nobody')", "2,3"),
        ("Name in (5, 'Smith')", "1,6"),
        ("RowKey in ('1','7') and PartitionKey in ('q','r')", "7"),
        ("Name eq null", "7"),
        ("null ne Other", "7"),
        ("PartitionKey ne null and Timestamp ne null and RowKey ne null", "1,2,3,4,5,6,7"),
        ("startswith(PartitionKey,'q')", "6,7"),
        ("not startswith(PartitionKey,'q') and endswith(RowKey,'1')", "1"),
        ("PartitionKey eq 'p' and startswith( RowKey , '2' )", "2"),
        ("contains(PartitionKey,'P')", ""),
        ("contains(toupper(PartitionKey),'P') and RowKey lt '3'", "1,2"),
    ] {
        assert_eq!(t.matching_rows(filter), found, "{filter}");
    }
}

fn text_is_compared_by_code_points_and_folds_ascii_alone(client: &Client) {
    let client = client.extended();
    let t = client.table();
    for (row, name) in [("1", "É"), ("2", "é"), ("3", "E\u{301}"), ("4", "😀a"), ("5", "İ"), ("6", "ß")]
    {
        t.seed(with_keys("p", row, json!({ "Name": name })));
    }
    for (filter, found) in [
        ("tolower(Name) eq 'é'", "2"),
        ("toupper(Name) eq 'É'", "1"),
        ("startswith(tolower(Name),'e')", "3"),
        ("startswith(Name,'E')", "3"),
        ("startswith(Name,'😀')", "4"),
        ("endswith(toupper(Name),'A')", "4"),
        ("tolower(Name) eq 'i'", ""),
        ("toupper(Name) eq 'SS'", ""),
    ] {
        assert_eq!(t.matching_rows(filter), found, "{filter}");
    }
}

fn the_characters_that_are_stored_escaped_are_found(client: &Client) {
    let client = client.extended();
    let t = client.table();
    for (row, name) in [("1", "a\u{0}\u{1}"), ("2", "a\u{1}"), ("3", "\u{0}\u{2}a"), ("4", "\u{2}")] {
        t.seed(with_keys("p", row, json!({ "Name": name })));
    }
    for (test, needle, found) in [
        ("startswith", "a\u{1}", "2"),
        ("startswith", "a", "1,2"),
        ("contains", "\u{1}", "1,2"),
        ("contains", "\u{2}", "3,4"),
        ("endswith", "\u{1}", "1,2"),
        ("endswith", "a", "3"),
    ] {
        let filter = format!("{test}(Name,'{needle}')");
        assert_eq!(t.matching_rows(&filter), found, "{filter:?}");
    }
}

fn a_prefix_of_keys_is_a_range_that_pages_walk(client: &Client) {
    let client = client.extended();
    let t = client.table();
    for partition in ["a", "ab", "abc", "ac", "b"] {
        t.seed_rows(partition, ["x1", "x2", "y"]);
    }
    let filter = escape("startswith(PartitionKey,'ab') and startswith(RowKey,'x')");
    let pages = t.pages(&format!("$filter={filter}&$top=1"));
    assert_eq!(keys_shown(&pages.concat()), "ab/x1 ab/x2 abc/x1 abc/x2");
}

fn filters_of_tables_ignore_case(client: &Client) {
    let client = client.extended();
    let t = client.table();
    let prefix = t.name[..t.name.len() - 1].to_uppercase();
    let named = |filter: &str| {
        let answer = client.get(&format!("/Tables?$filter={}", escape(filter)));
        let tables = rows(answer.expect_json());
        tables.iter().filter(|table| table["TableName"] == t.name.as_str()).count()
    };
    for filter in [
        format!("startswith(TableName,'{prefix}')"),
        format!("contains(toupper(TableName),'{prefix}') and TableName ne null"),
        format!("TableName in ('{}')", t.name.to_uppercase()),
    ] {
        assert_eq!(named(&filter), 1, "{filter}");
    }
    assert_eq!(named(&format!("not startswith(TableName,'{prefix}')")), 0);
}

fn no_filter_leaves_the_range_of_a_signature(client: &Client) {
    let client = client.extended();
    let t = client.table();
    for partition in ["a", "b", "c"] {
        t.seed_rows(partition, ["1", "2"]);
    }
    let bearer = Sas::table(&t.name, "r").range((Some("b"), Some("2")), (Some("b"), Some("2"))).of(&client);
    for filter in [
        "startswith(PartitionKey,'')",
        "not startswith(PartitionKey,'x')",
        "PartitionKey in ('a','b','c')",
        "contains(RowKey,'2') or RowKey ne null",
        "endswith(PartitionKey,'')",
    ] {
        let answer = Table::new(&bearer, &t.name).filter(filter);
        assert_eq!(keys_shown(&rows(answer.expect_json())), "b/2", "{filter}");
    }
}

fn a_query_in_a_batch_has_the_same_language(client: &Client) {
    let client = client.extended();
    let t = people(&client);
    let filter = escape("startswith(Name,'Sm')");
    let url = client.url(&format!("/{}()?$filter={filter}", t.name));
    let answer = post(&client, query_batch(&url)).send().expect(202);
    assert!(answer.text().contains("Smith") && !answer.text().contains("smart"), "{answer}");
}

fn operand_kinds_are_checked(client: &Client) {
    let client = client.extended();
    let t = people(&client);
    for (filter, status, code) in [
        ("startswith(PartitionKey,5)", 400, "InvalidInput"),
        ("startswith(Timestamp,'2')", 400, "InvalidInput"),
        ("contains(Name,5)", 400, "InvalidInput"),
        ("Name lt null", 400, "InvalidInput"),
        ("Name in (null)", 400, "InvalidInput"),
        ("startswith(Name,Other)", 501, "NotImplemented"),
        ("length(Name) eq 5", 501, "NotImplemented"),
        ("contains(Name,'x'", 400, "InvalidInput"),
    ] {
        t.filter(filter).expect_error_code(status, code);
    }
}

fn each_value_of_a_list_is_a_comparison(client: &Client) {
    let client = client.extended();
    let t = people(&client);
    let list = |n: usize| format!("RowKey in ({})", vec!["'1'"; n].join(","));
    assert_eq!(t.matching_rows(&list(1000)), "1");
    t.filter(&list(1001)).expect_error_code(400, "InvalidInput");
}

fn accounts_without_them_are_answered_as_before(client: &Client) {
    let t = people(client);
    for (filter, status, code) in [
        ("startswith(Name,'Sm')", 501, "NotImplemented"),
        ("substringof('m',Name) eq true", 501, "NotImplemented"),
        ("tolower(Name) eq 'x'", 501, "NotImplemented"),
        ("Name eq null", 400, "InvalidInput"),
        ("Name in ('a')", 400, "InvalidInput"),
    ] {
        t.filter(filter).expect_error_code(status, code);
    }
}
