//! Tables: names, pages, deletion.

use std::time::Duration;

use crate::support::store::AnyStore;
use rowhouse::error::Code;
use rowhouse::protocol::model::{CompareOp, EdmValue, Key};
use rowhouse::protocol::plan::scan::MAX_TIME;
use rowhouse::protocol::plan::{Field, Predicate, Span, TableScan};
use rowhouse::store::TableSize;

use super::contract::{account, insert, name, now, refusal, scan, table};

pub async fn creation_and_deletion<B: AnyStore>(store: &B) {
    let account = account();
    let created = now();
    store.create_table(name("People").in_account(&account), created).await.unwrap();
    let again = store.create_table(name("PEOPLE").in_account(&account), now()).await;
    assert_eq!(refusal(again), Code::TableAlreadyExists);
    let entry = store.get_table(name("people").in_account(&account)).await.unwrap().unwrap();
    assert_eq!((entry.name.as_str(), entry.created), ("People", created));
    store.delete_table(name("pEOPLE").in_account(&account), now()).await.unwrap();
    assert_eq!(store.get_table(name("People").in_account(&account)).await.unwrap(), None);
    assert_eq!(
        refusal(store.delete_table(name("People").in_account(&account), now()).await),
        Code::ResourceNotFound
    );
}

async fn names<B: AnyStore>(store: &B, account: &str, scan: &TableScan) -> (Vec<String>, Option<String>) {
    let page = store.list_tables(account, scan).await.unwrap();
    (page.tables.into_iter().map(|t| t.name).collect(), page.next.map(|t| t.name))
}

pub async fn pages_of_tables<B: AnyStore>(store: &B) {
    let account = account();
    for text in ["Beta", "alpha", "Delta", "gamma"] {
        store.create_table(name(text).in_account(&account), now()).await.unwrap();
    }
    let mut scan = TableScan { spans: vec![Span::everything()], residual: None, rows: 2, time: MAX_TIME };
    let first = names(store, &account, &scan).await;
    assert_eq!(first, (vec!["alpha".into(), "Beta".into()], Some("Delta".into())));
    scan.spans = vec![Span { lower: Key::new("delta", ""), upper: None }];
    assert_eq!(names(store, &account, &scan).await, (vec!["Delta".into(), "gamma".into()], None));
    scan.spans = vec![
        Span { lower: Key::new("alpha", "x"), upper: Some(Key::new("beta", "x")) },
        Span { lower: Key::new("gamma", ""), upper: None },
    ];
    assert_eq!(names(store, &account, &scan).await, (vec!["Beta".into(), "gamma".into()], None));
    scan.spans = vec![];
    assert_eq!(names(store, &account, &scan).await, (vec![], None));
}

pub async fn filtered_tables<B: AnyStore>(store: &B) {
    let account = account();
    for text in ["aaa", "bbb", "ccc", "ddd"] {
        store.create_table(name(text).in_account(&account), now()).await.unwrap();
    }
    let literal = EdmValue::String("bbb".into());
    let residual = Predicate::Compare { field: Field::PartitionKey, op: CompareOp::Ne, literal };
    let scan =
        TableScan { spans: vec![Span::everything()], residual: Some(residual), rows: 2, time: MAX_TIME };
    let page = names(store, &account, &scan).await;
    assert_eq!(page, (vec!["aaa".into(), "ccc".into()], Some("ddd".into())));
}

/// A list that has no time left still gets somewhere, far further than it has tables to
/// show, and a walk of such pages finds every match once.
pub async fn tables_out_of_time<B: AnyStore>(store: &B) {
    const TABLES: usize = 1100;
    let account = account();
    for n in 0..TABLES {
        store.create_table(name(&format!("T{n:04}")).in_account(&account), now()).await.unwrap();
    }
    let literal = EdmValue::String("t1050".into());
    let mut scan = TableScan {
        spans: vec![Span::everything()],
        residual: Some(Predicate::Not(Box::new(Predicate::Compare {
            field: Field::PartitionKey,
            op: CompareOp::Ne,
            literal,
        }))),
        rows: 1,
        time: Duration::ZERO,
    };
    let (mut found, mut pages) = (vec![], 0);
    loop {
        let (tables, next) = names(store, &account, &scan).await;
        found.extend(tables);
        pages += 1;
        let Some(next) = next else { break };
        let next = Key::new(next.to_lowercase(), "");
        assert!(next > scan.spans[0].lower, "no progress past {next:?}");
        scan.spans = vec![Span { lower: next, upper: None }];
    }
    assert_eq!(found, ["T1050"]);
    assert!((2..=TABLES / 16).contains(&pages), "{pages} pages");
}

pub async fn deleted_tables_are_empty_when_recreated<B: AnyStore>(store: &B) {
    let (account, table) = table(store).await;
    let everything = scan(vec![Span::everything()]);
    let key = Key::new("p", "r");
    for _ in 0..3 {
        store.write(table.in_account(&account), &insert("p", "r"), now()).await.unwrap();
        assert!(store.get(table.in_account(&account), &key).await.unwrap().is_some());
        store.delete_table(table.in_account(&account), now()).await.unwrap();
        assert_eq!(refusal(store.get(table.in_account(&account), &key).await), Code::TableNotFound);
        assert_eq!(refusal(store.query(table.in_account(&account), &everything).await), Code::TableNotFound);
        store.create_table(table.in_account(&account), now()).await.unwrap();
        assert_eq!(store.get(table.in_account(&account), &key).await.unwrap(), None);
        assert!(store.query(table.in_account(&account), &everything).await.unwrap().entities.is_empty());
    }
}

pub async fn sizes<B: AnyStore>(store: &B) {
    store.answers().await.unwrap();
    let (account, table) = table(store).await;
    let size = async |most| store.size(table.in_account(&account), most).await.unwrap();
    assert_eq!(size(5).await, TableSize { entities: 0, bytes: 0, complete: true });
    for (partition, row) in [("p", "a"), ("q", "b"), ("r", "c")] {
        store.write(table.in_account(&account), &insert(partition, row), now()).await.unwrap();
    }
    let all = size(3).await;
    assert_eq!((all.entities, all.complete), (3, true));
    assert!(all.bytes >= 6, "{all:?}");
    let some = size(2).await;
    assert!(some.entities >= 2 && !some.complete && some.bytes <= all.bytes, "{some:?}");
    store.delete_table(table.in_account(&account), now()).await.unwrap();
    assert_eq!(refusal(store.size(table.in_account(&account), 1).await), Code::TableNotFound);
    assert!(store.backlog().await.unwrap() >= 1);
}
