//! `rowhouse copy --all-accounts`.

use super::prepare::CopyArguments;
use crate::cli::output::{TransferEnd, note};
use crate::cli::transfer::arguments::TransferSession;
use crate::transfer::{DataLocation, Selection};

/// Copies the accounts of a database, and then the tables of each account with `copy`, one account after the other.
/// Returns the worst end. An interruption or wrong arguments end the command.
pub(super) fn run(
    arguments: &CopyArguments,
    [from, to]: [&DataLocation; 2],
    session: &TransferSession,
    copy: impl Fn([&DataLocation; 2]) -> Result<(), TransferEnd>,
) -> Result<(), TransferEnd> {
    let mut worst = Ok(());
    for account in copy_accounts(arguments, [from, to], session)? {
        let [from, to] = [from, to].map(|place| place.with_account(&account));
        let in_account = |text| format!("account {account}: {text}");
        let ended = match copy([&from, &to]) {
            Err(TransferEnd::Usage(text)) => return Err(TransferEnd::Usage(in_account(text))),
            Err(TransferEnd::Interrupted(text)) => return Err(TransferEnd::Interrupted(in_account(text))),
            Err(TransferEnd::Failed(text)) => {
                note(&in_account(text));
                Err(TransferEnd::Failed("some accounts could not be copied".into()))
            }
            ended => ended,
        };
        if severity(&ended) > severity(&worst) {
            worst = ended;
        }
    }
    worst
}

fn severity(ended: &Result<(), TransferEnd>) -> u8 {
    match ended {
        Ok(()) => 0,
        Err(TransferEnd::Rejected) => 1,
        Err(TransferEnd::Differs) => 2,
        Err(_) => 3,
    }
}

/// Copies the stored accounts with their keys, limits and queries, except in a dry run. Returns the accounts that have
/// tables.
fn copy_accounts(
    arguments: &CopyArguments,
    [from, to]: [&DataLocation; 2],
    session: &TransferSession,
) -> Result<Vec<String>, TransferEnd> {
    let selection = Selection::default();
    let opener = session.opener(&selection);
    let source = opener.open_accounts(from).map_err(|error| error.on("FROM"))?;
    if !arguments.dry_run {
        let master = arguments.master_keys()?;
        let target = opener.open_target(to).map_err(|error| error.on("TO"))?;
        let copied = source.copy_accounts(&target, &master)?;
        note(&format!("{copied} accounts copied; existing accounts were not changed"));
    }
    let accounts = source.accounts_with_tables().map_err(|error| error.on("FROM"))?;
    if !arguments.dry_run && (arguments.mirror || arguments.verify) {
        if accounts.is_empty() {
            return Err(TransferEnd::Usage("--all-accounts: FROM has no table of any account".into()));
        }
        let target = opener.open_accounts(to).map_err(|error| error.on("TO"))?;
        let theirs = target.accounts_with_tables().map_err(|error| error.on("TO"))?;
        if let Some(extra) = theirs.iter().find(|account| !accounts.contains(account)) {
            let text = format!(
                "--all-accounts: TO has tables of the account {extra}, and FROM has none; delete them, or copy each \
                 account by its name"
            );
            return Err(TransferEnd::Usage(text));
        }
    }
    Ok(accounts)
}
