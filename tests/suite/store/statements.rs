//! What statement texts may not contain.

use std::borrow::Cow;

use rowhouse_store::catalog;
use rowhouse_store::postgres::statements;

/// Every text for PostgreSQL.
fn texts() -> Vec<Cow<'static, str>> {
    statements::all().into_iter().chain(catalog::texts().into_iter().map(Cow::Borrowed)).collect()
}

#[test]
fn every_statement_on_entities_names_its_bucket() {
    for text in texts() {
        // Each place that reads or writes the table, also inside one statement.
        let uses = ["FROM entities", "JOIN entities", "INTO entities", "UPDATE entities"];
        let uses: usize = uses.iter().map(|form| text.matches(form).count()).sum();
        let buckets = text.matches("bucket").count();
        assert!(buckets >= uses, "{text}");
    }
}

#[test]
fn no_statement_uses_a_form_that_sharding_engines_refuse() {
    for text in texts() {
        let lower = text.to_lowercase();
        for form in
            ["now()", "clock_timestamp", "current_", "ctid", "xmax", "merge into", "on constraint", "lateral"]
        {
            assert!(!lower.contains(form), "{form} in {text}");
        }
        assert!(!text.contains('\''), "a literal in {text}");
    }
}
