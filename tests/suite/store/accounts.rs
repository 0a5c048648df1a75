//! Accounts: changes of all of them at once.

use crate::support::store::AnyStore;
use rowhouse::store::{AccountChange, Resealed, StoredAccount};

use super::contract::{account, now};

/// The only case that changes accounts, of which there is one count.
pub async fn sealed_anew_together<B: AnyStore>(store: &B) {
    let add = |keys: [&[u8]; 2]| {
        let now = now();
        let keys = keys.map(<[u8]>::to_vec);
        StoredAccount { name: account(), keys, disabled: true, created: now, rotated: [now; 2] }
    };
    let [one, two] = [add([b"1a", b"1b"]), add([b"2a", b"2b"])];
    for account in [&one, &two] {
        assert!(store.change_account(&AccountChange::Add(account.clone())).await.unwrap());
    }
    let count = async || store.account_changes().await.unwrap().accounts;
    let seen = count().await;
    let anew = |account: &StoredAccount, keys: [&[u8]; 2]| Resealed {
        name: account.name.clone(),
        keys: keys.map(<[u8]>::to_vec),
    };
    let accounts = vec![anew(&one, [b"1c", b"1d"]), anew(&two, [b"2c", b"2d"])];
    let mine = async || {
        let all = store.accounts().await.unwrap().into_iter();
        all.filter(|found| [&one.name, &two.name].contains(&&found.name)).collect::<Vec<_>>()
    };
    let before = mine().await;
    for stale in [seen - 1, seen + 1] {
        let change = AccountChange::Reseal { seen: stale, accounts: accounts.clone() };
        assert!(!store.change_account(&change).await.unwrap());
        assert_eq!((mine().await, count().await), (before.clone(), seen));
    }
    let change = AccountChange::Reseal { seen, accounts: accounts.clone() };
    assert!(store.change_account(&change).await.unwrap());
    assert_eq!(count().await, seen + 1);
    for (mut was, anew) in [one.clone(), two.clone()].into_iter().zip(accounts) {
        was.keys = anew.keys;
        assert!(mine().await.contains(&was), "only the keys are others");
    }
    an_account_is_removed_with_what_an_operator_chose_for_it(store, &one.name).await;
}

async fn an_account_is_removed_with_what_an_operator_chose_for_it<B: AnyStore>(store: &B, name: &str) {
    let name = name.to_owned();
    let options = async || {
        let all = store.account_options().await.unwrap();
        all.into_iter().find(|options| options.name == name)
    };
    let limit = AccountChange::Limit { name: name.clone(), requests_per_second: Some(7) };
    assert!(store.change_account(&limit).await.unwrap());
    let queries = AccountChange::Queries { name: name.clone(), extended: true };
    assert!(store.change_account(&queries).await.unwrap());
    assert!(options().await.is_some());
    let before = store.account_changes().await.unwrap().options;
    assert!(store.change_account(&AccountChange::Remove { name: name.clone() }).await.unwrap());
    assert_eq!(options().await, None);
    assert!(store.account_changes().await.unwrap().options > before);
    assert!(!store.change_account(&AccountChange::Remove { name: name.clone() }).await.unwrap());
}

/// Limits and service properties by account, and that each change of one is counted.
pub async fn options_by_account<B: AnyStore>(store: &B) {
    let (limited, both, none) = (account(), account(), account());
    let limit =
        |name: &str, requests_per_second| AccountChange::Limit { name: name.to_owned(), requests_per_second };
    let count = async || store.account_changes().await.unwrap().options;
    let of = async |name: &str| {
        let all = store.account_options().await.unwrap();
        all.into_iter().find(|options| options.name == name)
    };
    let before = count().await;
    assert!(store.change_account(&limit(&limited, Some(7))).await.unwrap());
    assert!(store.change_account(&limit(&both, Some(1))).await.unwrap());
    assert!(store.change_account(&limit(&both, Some(1_000_000))).await.unwrap());
    store.set_properties(&both, r#"{"a":1}"#).await.unwrap();
    assert!(count().await >= before + 4);
    assert_eq!(of(&limited).await.unwrap().requests_per_second, Some(7));
    assert_eq!(of(&limited).await.unwrap().properties, None);
    let found = of(&both).await.unwrap();
    assert_eq!(found.requests_per_second, Some(1_000_000));
    assert_eq!(found.properties.map(|text| text.replace(' ', "")).as_deref(), Some(r#"{"a":1}"#));
    assert_eq!(of(&none).await, None);
    assert!(store.change_account(&limit(&limited, None)).await.unwrap());
    assert_eq!(of(&limited).await.and_then(|options| options.requests_per_second), None);
}

/// Whether accounts have extended queries, which is unknown until it is set, and apart from their limits.
pub async fn queries_by_account<B: AnyStore>(store: &B) {
    let [extended, plain, limited] = [account(), account(), account()];
    let choose = async |name: &str, extended| {
        let change = AccountChange::Queries { name: name.to_owned(), extended };
        assert!(store.change_account(&change).await.unwrap());
    };
    let of = async |name: &str| {
        let all = store.account_options().await.unwrap();
        all.into_iter().find(|options| options.name == name)
    };
    let before = store.account_changes().await.unwrap().options;
    choose(&extended, true).await;
    choose(&plain, true).await;
    choose(&plain, false).await;
    let limit = AccountChange::Limit { name: limited.clone(), requests_per_second: Some(7) };
    assert!(store.change_account(&limit).await.unwrap());
    assert!(store.account_changes().await.unwrap().options >= before + 4);
    assert_eq!(of(&limited).await.unwrap().extended_queries, None);
    assert_eq!(of(&plain).await.unwrap().extended_queries, Some(false));
    store.set_properties(&extended, r#"{"a":1}"#).await.unwrap();
    choose(&limited, true).await;
    let found = of(&extended).await.unwrap();
    assert_eq!((found.extended_queries, found.requests_per_second), (Some(true), None));
    assert!(found.properties.is_some());
    let found = of(&limited).await.unwrap();
    assert_eq!((found.extended_queries, found.requests_per_second), (Some(true), Some(7)));
}
