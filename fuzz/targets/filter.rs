#![no_main]
//! `$filter`: its tree, what it means, where the stores look for it, and whether
//! that finds what the meaning says.

use libfuzzer_sys::fuzz_target;
use rowhouse_fuzz::filter::{Mentioned, comparisons, print};
use rowhouse_fuzz::{COMPARISONS, EXTENDED, PLAIN, assert_refused, assert_same, now};
use rowhouse_protocol::codec::stored;
use rowhouse_protocol::error::{Code, Error};
use rowhouse_protocol::model::{Key, Stored};
use rowhouse_protocol::odata::{self, Expr};
use rowhouse_protocol::plan::filter::{Subject, predicate};
use rowhouse_protocol::plan::page::encode_token;
use rowhouse_protocol::plan::predicate::{EntityView, Prepared};
use rowhouse_protocol::plan::span::first_whole_partition;
use rowhouse_protocol::plan::{Predicate, Span, query};
use rowhouse_protocol::request::QueryOptions;
use rowhouse_store::postgres::sql_of;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let extended = odata::parse(text, EXTENDED);
    check_agreement(text, &extended);
    let expr = match extended {
        Ok(expr) => expr,
        Err(error) => return assert_refused(&error),
    };
    assert!(comparisons(&expr) <= COMPARISONS);
    let printed = print(&expr);
    assert_same(&Ok::<_, ()>(&expr), &odata::parse(&printed, EXTENDED), &printed);
    check_tables(&expr);
    match predicate(&expr, Subject::Entities) {
        Ok(predicate) => check_entities(&expr, &predicate),
        Err(error) => assert_refused(&error),
    }
});

/// Extended queries change no answer but those to what the service lacks.
fn check_agreement(text: &str, extended: &Result<Expr, Error>) {
    let plain = odata::parse(text, PLAIN);
    let may_differ = match &plain {
        Ok(_) => false,
        Err(error) => match error.code {
            Code::NotImplemented => true,
            Code::InvalidInput => text.contains("null"),
            _ => text.contains("in"),
        },
    };
    if !may_differ {
        assert_same(&plain, extended, text);
    }
}

fn check_entities(expr: &Expr, predicate: &Predicate) {
    check_sql(predicate);
    let mentioned = Mentioned::by(expr);
    let keys = mentioned.keys();
    let all = QueryOptions { filter: Some(expr.clone()), ..QueryOptions::default() };
    let scan = query::entities(&all, None).expect("its filter was understood");
    check_spans(&scan.spans);
    let middle = &keys[keys.len() / 2];
    let from = QueryOptions {
        next_partition: Some(encode_token(&middle.partition)),
        next_row: Some(encode_token(&middle.row)),
        ..all
    };
    let rest = query::entities(&from, None).expect("its filter was understood");
    check_spans(&rest.spans);
    let prepared = Prepared::new(predicate);
    for entity in mentioned.entities(&keys, now()) {
        let meant = holds(predicate, &entity);
        assert_eq!(prepared.matches((&entity).into()), Ok(meant), "{entity:?}");
        let by_properties = prepared.matches_properties(entity.properties.as_str().as_bytes());
        assert!(by_properties == Ok(None) || by_properties == Ok(Some(meant)), "{entity:?}");
        let finds = |spans: &[Span], residual: Option<&Predicate>| {
            spans.iter().any(|span| lies_in(&entity.key, span)) && residual.is_none_or(|p| holds(p, &entity))
        };
        assert_eq!(finds(&scan.spans, scan.residual.as_ref()), meant, "{entity:?} in {scan:?}");
        let expected = meant && entity.key >= *middle;
        assert_eq!(finds(&rest.spans, rest.residual.as_ref()), expected, "{entity:?} in {rest:?}");
    }
}

/// Evaluates on everything that is stored.
fn holds(predicate: &Predicate, entity: &Stored) -> bool {
    let decoded = stored::decode(&entity.properties).expect("it is in stored form");
    let mut properties: Vec<_> = decoded.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    properties.sort_by_key(|(name, _)| *name);
    let Key { partition, row } = &entity.key;
    predicate.eval(&EntityView { partition, row, modified: entity.modified, properties })
}

fn lies_in(key: &Key, span: &Span) -> bool {
    span.lower <= *key && span.upper.as_ref().is_none_or(|upper| key < upper)
}

/// Ascending, disjoint, and none of them empty.
fn check_spans(spans: &[Span]) {
    assert!(spans.iter().all(|span| span.upper.as_ref().is_none_or(|upper| span.lower < *upper)));
    let apart = |pair: &[Span]| pair[0].upper.as_ref().is_some_and(|upper| *upper <= pair[1].lower);
    assert!(spans.windows(2).all(apart), "{spans:?}");
}

fn check_tables(expr: &Expr) {
    let predicate = match predicate(expr, Subject::Tables) {
        Ok(predicate) => predicate,
        Err(error) => return assert_refused(&error),
    };
    let options = QueryOptions { filter: Some(expr.clone()), ..QueryOptions::default() };
    let scan = query::tables(&options).expect("its filter was understood");
    for key in Mentioned::by(expr).keys() {
        let name = key.partition.to_ascii_lowercase();
        let view = EntityView { partition: &name, row: "", modified: now(), properties: Vec::new() };
        let found = scan.spans.iter().any(|span| {
            name >= first_whole_partition(&span.lower)
                && span.upper.as_ref().is_none_or(|upper| name < first_whole_partition(upper))
        });
        let found = found && scan.residual.as_ref().is_none_or(|p| p.eval(&view));
        assert_eq!(found, predicate.eval(&view), "{name} in {scan:?}");
    }
}

/// What PostgreSQL is told consists of our own words; the rest are parameters.
fn check_sql(predicate: &Predicate) {
    let Some(sql) = sql_of(predicate) else { return };
    let (text, binds) = sql.expect("every predicate can be said");
    for word in text.split(|c: char| !(c.is_alphanumeric() || matches!(c, '$' | '_' | '.'))) {
        let known = word.strip_prefix('$').map_or_else(
            || WORDS.contains(&word),
            |number| number.parse().is_ok_and(|n: usize| (1..=binds).contains(&n)),
        );
        assert!(known, "{word:?} in {text}");
    }
    let count = |c| text.matches(c).count();
    assert_eq!(count('('), count(')'), "{text}");
    assert!(count('\'').is_multiple_of(2) && !text.contains([';', '\\']) && !text.contains("--"), "{text}");
}

const WORDS: &[&str] = &[
    "",
    "AND",
    "OR",
    "NOT",
    "true",
    "false",
    "CASE",
    "WHEN",
    "THEN",
    "ELSE",
    "END",
    "IS",
    "NULL",
    "COLLATE",
    "C",
    "NaN",
    "Z",
    "pk",
    "rk",
    "modified",
    "properties",
    "coalesce",
    "lower",
    "upper",
    "starts_with",
    "strpos",
    "right",
    "length",
    "0",
    "rtrim",
    "decode",
    "base64",
    "jsonb",
    "jsonb_typeof",
    "string",
    "number",
    "boolean",
    "int4",
    "int8",
    "float8",
    "Edm.String",
    "Edm.Binary",
    "Edm.DateTime",
    "Edm.Double",
    "Edm.Guid",
    "Edm.Int64",
];
