//! Accounts: changes of all of them at once.

use rowhouse_store::{AccountChange, AccountOptions, Resealed, StoredAccount};

use super::contract::{account, now};
use crate::support::store::AnyStore;

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

/// What an operator chose for an account.
async fn options<B: AnyStore>(store: &B, name: &str) -> Option<AccountOptions> {
    store.account_options().await.unwrap().into_iter().find(|options| options.name == name)
}

async fn changes<B: AnyStore>(store: &B) -> i64 {
    store.account_changes().await.unwrap().options
}

async fn limit<B: AnyStore>(store: &B, name: &str, requests_per_second: Option<u32>) {
    let change = AccountChange::Limit { name: name.to_owned(), requests_per_second };
    assert!(store.change_account(&change).await.unwrap());
}

async fn extend<B: AnyStore>(store: &B, name: &str, extended: bool) {
    let change = AccountChange::Queries { name: name.to_owned(), extended };
    assert!(store.change_account(&change).await.unwrap());
}

async fn an_account_is_removed_with_what_an_operator_chose_for_it<B: AnyStore>(store: &B, name: &str) {
    limit(store, name, Some(7)).await;
    extend(store, name, true).await;
    assert!(options(store, name).await.is_some());
    let before = changes(store).await;
    let removal = AccountChange::Remove { name: name.to_owned() };
    assert!(store.change_account(&removal).await.unwrap());
    assert_eq!(options(store, name).await, None);
    assert!(changes(store).await > before);
    assert!(!store.change_account(&removal).await.unwrap());
}

/// Limits, extended queries and service properties by account are set apart, and each change of one is counted.
/// Whether queries are extended is unknown until it is set.
pub async fn options_by_account<B: AnyStore>(store: &B) {
    let [limited, both, plain, none] = [account(), account(), account(), account()];
    let before = changes(store).await;
    limit(store, &limited, Some(7)).await;
    limit(store, &both, Some(1)).await;
    limit(store, &both, Some(1_000_000)).await;
    store.set_properties(&both, r#"{"a":1}"#).await.unwrap();
    extend(store, &both, true).await;
    extend(store, &plain, true).await;
    extend(store, &plain, false).await;
    assert!(changes(store).await >= before + 7);
    for (name, requests_per_second, extended, properties) in [
        (&limited, Some(7), None, None),
        (&both, Some(1_000_000), Some(true), Some(r#"{"a":1}"#)),
        (&plain, None, Some(false), None),
    ] {
        let found = options(store, name).await.unwrap();
        assert_eq!((found.requests_per_second, found.extended_queries), (requests_per_second, extended));
        assert_eq!(found.properties.map(|text| text.replace(' ', "")).as_deref(), properties);
    }
    assert_eq!(options(store, &none).await, None);
    limit(store, &limited, None).await;
    assert_eq!(options(store, &limited).await.and_then(|options| options.requests_per_second), None);
}
