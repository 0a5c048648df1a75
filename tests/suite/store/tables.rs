//! Tables: names, pages, deletion.

use std::time::Duration;

use rowhouse_protocol::error::Code;
use rowhouse_protocol::model::{CompareOp, EdmValue, Key};
use rowhouse_protocol::plan::span::starting_at;
use rowhouse_protocol::plan::{Field, Predicate, Span, TableScan};
use rowhouse_store::TableSize;

use super::contract::{TestTable, account, everything, insert, name, now, refusal, table};
use crate::support::store::AnyStore;

pub async fn creation_and_deletion<B: AnyStore>(store: &B) {
    let account = account();
    let table = |text| TestTable { store, account: account.clone(), name: name(text) };
    let created = now();
    store.create_table(table("People").place(), created).await.unwrap();
    assert_eq!(refusal(table("PEOPLE").create().await), Code::TableAlreadyExists);
    let entry = store.get_table(table("people").place()).await.unwrap().unwrap();
    assert_eq!((entry.name.as_str(), entry.created), ("People", created));
    table("pEOPLE").delete().await.unwrap();
    assert_eq!(store.get_table(table("People").place()).await.unwrap(), None);
    assert_eq!(refusal(table("People").delete().await), Code::ResourceNotFound);
}

/// A new account with these tables.
pub async fn account_with<B: AnyStore>(store: &B, names: impl IntoIterator<Item = String>) -> String {
    let account = account();
    for text in names {
        store.create_table(name(&text).in_account(&account), now()).await.expect("a new table");
    }
    account
}

/// The tables of these ranges of names, without bounds.
pub fn list(spans: Vec<Span>) -> TableScan {
    TableScan { spans, residual: None, rows: 1000, time: Duration::from_secs(60) }
}

async fn names<B: AnyStore>(store: &B, account: &str, scan: &TableScan) -> (Vec<String>, Option<String>) {
    let page = store.list_tables(account, scan).await.unwrap();
    (page.tables.into_iter().map(|t| t.name).collect(), page.next.map(|t| t.name))
}

/// Follows a list to its end; its names, and the number of pages.
pub async fn listed<B: AnyStore>(store: &B, account: &str, mut scan: TableScan) -> (Vec<String>, usize) {
    let (mut found, mut pages) = (Vec::new(), 0);
    loop {
        let (tables, next) = names(store, account, &scan).await;
        found.extend(tables);
        pages += 1;
        assert!(pages < 500, "the list makes no progress");
        let Some(next) = next else { return (found, pages) };
        scan.spans = starting_at(scan.spans, &Key::new(next.to_lowercase(), ""));
    }
}

pub async fn pages_of_tables<B: AnyStore>(store: &B) {
    let account = account_with(store, ["Beta", "alpha", "Delta", "gamma"].map(str::to_owned)).await;
    let span = |lower: (&str, &str), upper: Option<(&str, &str)>| Span {
        lower: Key::new(lower.0, lower.1),
        upper: upper.map(|(name, rest)| Key::new(name, rest)),
    };
    for (spans, found, next) in [
        (vec![Span::everything()], vec!["alpha", "Beta"], Some("Delta")),
        (vec![span(("delta", ""), None)], vec!["Delta", "gamma"], None),
        (
            vec![span(("alpha", "x"), Some(("beta", "x"))), span(("gamma", ""), None)],
            vec!["Beta", "gamma"],
            None,
        ),
        (vec![], vec![], None),
    ] {
        let page = names(store, &account, &TableScan { rows: 2, ..list(spans) }).await;
        assert_eq!(page, (found.into_iter().map(str::to_owned).collect(), next.map(str::to_owned)));
    }
}

pub async fn filtered_tables<B: AnyStore>(store: &B) {
    let account = account_with(store, ["aaa", "bbb", "ccc", "ddd"].map(str::to_owned)).await;
    let literal = EdmValue::String("bbb".into());
    let residual = Some(Predicate::Compare { field: Field::PartitionKey, op: CompareOp::Ne, literal });
    let scan = TableScan { residual, rows: 2, ..list(vec![Span::everything()]) };
    let page = names(store, &account, &scan).await;
    assert_eq!(page, (vec!["aaa".into(), "ccc".into()], Some("ddd".into())));
}

/// A list that has no time left still gets somewhere, far further than it has tables to
/// show, and a walk of such pages finds every match once.
pub async fn tables_out_of_time<B: AnyStore>(store: &B) {
    const TABLES: usize = 1100;
    let account = account_with(store, (0..TABLES).map(|n| format!("T{n:04}"))).await;
    let literal = EdmValue::String("t1050".into());
    let others = Predicate::Compare { field: Field::PartitionKey, op: CompareOp::Ne, literal };
    let residual = Some(Predicate::Not(Box::new(others)));
    let scan = TableScan { residual, rows: 1, time: Duration::ZERO, ..list(vec![Span::everything()]) };
    let (found, pages) = listed(store, &account, scan).await;
    assert_eq!(found, ["T1050"]);
    assert!((2..=TABLES / 16).contains(&pages), "{pages} pages");
}

pub async fn deleted_tables_are_empty_when_recreated<B: AnyStore>(store: &B) {
    let table = table(store).await;
    let everything = everything();
    let key = Key::new("p", "r");
    for _ in 0..3 {
        table.write(&insert("p", "r")).await.unwrap();
        assert!(table.get(&key).await.unwrap().is_some());
        table.delete().await.unwrap();
        assert_eq!(refusal(table.get(&key).await), Code::TableNotFound);
        assert_eq!(refusal(table.query(&everything).await), Code::TableNotFound);
        table.create().await.unwrap();
        assert_eq!(table.get(&key).await.unwrap(), None);
        assert!(table.query(&everything).await.unwrap().entities.is_empty());
    }
}

pub async fn sizes<B: AnyStore>(store: &B) {
    store.answers().await.unwrap();
    let table = table(store).await;
    let size = async |most| store.size(table.place(), most).await.unwrap();
    assert_eq!(size(5).await, TableSize { entities: 0, bytes: 0, complete: true });
    for (partition, row) in [("p", "a"), ("q", "b"), ("r", "c")] {
        table.write(&insert(partition, row)).await.unwrap();
    }
    let all = size(3).await;
    assert_eq!((all.entities, all.complete), (3, true));
    assert!(all.bytes >= 6, "{all:?}");
    let some = size(2).await;
    assert!(some.entities >= 2 && !some.complete && some.bytes <= all.bytes, "{some:?}");
    table.delete().await.unwrap();
    assert_eq!(refusal(store.size(table.place(), 1).await), Code::TableNotFound);
    assert!(store.backlog().await.unwrap() >= 1);
}
