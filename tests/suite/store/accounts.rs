//! Accounts: changes of all of them at once.

use rowhouse::store::{AccountChange, Backend, Resealed, StoredAccount};

use super::contract::{account, now};

/// The only case that changes accounts, of which there is one count.
pub async fn sealed_anew_together<B: Backend>(store: &B) {
    let add = |keys: [&[u8]; 2]| {
        let now = now();
        let keys = keys.map(<[u8]>::to_vec);
        StoredAccount { name: account(), keys, disabled: true, created: now, rotated: [now; 2] }
    };
    let [one, two] = [add([b"1a", b"1b"]), add([b"2a", b"2b"])];
    for account in [&one, &two] {
        assert!(store.change_account(&AccountChange::Add(account.clone())).await.unwrap());
    }
    let seen = store.account_changes().await.unwrap();
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
        assert_eq!((mine().await, store.account_changes().await.unwrap()), (before.clone(), seen));
    }
    let change = AccountChange::Reseal { seen, accounts: accounts.clone() };
    assert!(store.change_account(&change).await.unwrap());
    assert_eq!(store.account_changes().await.unwrap(), seen + 1);
    for (mut was, anew) in [one.clone(), two.clone()].into_iter().zip(accounts) {
        was.keys = anew.keys;
        assert!(mine().await.contains(&was), "only the keys are others");
    }
}
