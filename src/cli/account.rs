//! `rowhouse account …`: manages the accounts that are stored in the database.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use serde_json::json;

use super::database::{DatabaseArguments, Opening, list_or};
use super::endpoint::{EndpointSettings, KeyNumber};
use super::output::{Done, Problem};
use crate::operator::OperatorError;
use crate::operator::accounts::{self, AccountReport, RotatedKey};
use crate::protocol::auth::accounts::connection_string;
use crate::protocol::auth::key_encryption::MasterKeys;
use crate::protocol::model::Ticks;
use crate::server::config::MasterKeySettings;
use crate::server::file::read_text;
use crate::store::Store;

const ADD_EXAMPLES: &str = "Examples:
  openssl rand -base64 32 > master.key
  export ROWHOUSE_MASTER_KEY_FILE=master.key
  rowhouse account add myaccount
  rowhouse account add myaccount --endpoint https://tables.example.com --json
  rowhouse account add myaccount --keys-file keys.txt   # keys that clients already have

The keys are printed once. Servers with the same master key serve the account within seconds.";
const ROTATE_EXAMPLES: &str = "Examples:
  rowhouse account rotate myaccount --key 2   # then switch the clients to the new key 2
  rowhouse account rotate myaccount --key 1   # now the old key 1 is no longer valid anywhere";

const LIMIT_EXAMPLES: &str = "Examples:
  rowhouse account limit myaccount --requests-per-second 500
  rowhouse account limit myaccount --none   # --max-requests-per-second of each server applies again

The account may also be one from --accounts. Servers apply the change within seconds.";

const QUERIES_EXAMPLES: &str = "Examples:
  rowhouse account queries myaccount extended
  rowhouse account queries myaccount service   # only the queries of Azure, the default

Programs that use extended queries do not run on Azure. The account may also be one from --accounts;
this command overrides --extended-queries. Servers apply the change within seconds.";

const RESEAL_EXAMPLE: &str = "Example:
  openssl rand -base64 32 > new.key
  rowhouse account reseal --old-master-key-file master.key --master-key-file new.key

Before this command, give every server both master keys; after it, give them only the new one.";

/// The subcommands of `rowhouse account`.
#[derive(Debug, Subcommand)]
pub(crate) enum AccountCommand {
    /// Add an account, and print its keys and a connection string once
    #[command(after_help = ADD_EXAMPLES)]
    Add(AddArguments),
    /// List the accounts, without their keys
    #[command(after_help = "Example:\n  rowhouse account list --json")]
    List(DatabaseArguments),
    /// Replace one of the two keys and print the new key once; the other key keeps working
    #[command(after_help = ROTATE_EXAMPLES)]
    Rotate(RotateArguments),
    /// Refuse the requests of an account, and keep its keys and tables
    #[command(after_help = "Example:\n  rowhouse account disable myaccount")]
    Disable(NameArguments),
    /// Serve a disabled account again
    #[command(after_help = "Example:\n  rowhouse account enable myaccount")]
    Enable(NameArguments),
    /// Limit the requests per second of an account on each server, or remove its limit
    #[command(after_help = LIMIT_EXAMPLES)]
    Limit(LimitArguments),
    /// Allow or forbid extended queries for the clients of an account
    #[command(after_help = QUERIES_EXAMPLES)]
    Queries(QueriesArguments),
    /// Remove an account and its keys; its tables stay, but are inaccessible until you add the name again
    #[command(after_help = "Example:\n  rowhouse account remove myaccount")]
    Remove(NameArguments),
    /// Encrypt all stored keys with a new master key; the keys themselves do not change
    #[command(after_help = RESEAL_EXAMPLE)]
    Reseal(ResealArguments),
}

#[derive(Debug, Args)]
pub(crate) struct AddArguments {
    /// The account's name, 3 to 24 lower-case letters and digits
    name: String,
    /// File with the account's two keys in base64, one per line [default: new keys]
    #[arg(long, value_name = "FILE")]
    keys_file: Option<std::path::PathBuf>,
    #[command(flatten)]
    endpoint: EndpointSettings,
    #[command(flatten)]
    master_key: MasterKeySettings,
    #[command(flatten)]
    database: DatabaseArguments,
}

#[derive(Debug, Args)]
pub(crate) struct RotateArguments {
    /// The account's name
    name: String,
    /// The key to replace
    #[arg(long, value_enum)]
    key: KeyNumber,
    #[command(flatten)]
    endpoint: EndpointSettings,
    #[command(flatten)]
    master_key: MasterKeySettings,
    #[command(flatten)]
    database: DatabaseArguments,
}

#[derive(Debug, Args)]
pub(crate) struct NameArguments {
    /// The account's name
    name: String,
    #[command(flatten)]
    database: DatabaseArguments,
}

#[derive(Debug, Args)]
pub(crate) struct LimitArguments {
    /// The account's name
    name: String,
    /// Maximum requests per second on each server, which refuses further requests with 503 ServerBusy
    #[arg(
        long,
        value_name = "NUMBER",
        required_unless_present = "none",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(accounts::MAX_REQUESTS_PER_SECOND))
    )]
    requests_per_second: Option<u32>,
    /// Remove the limit
    #[arg(long, conflicts_with = "requests_per_second")]
    none: bool,
    #[command(flatten)]
    database: DatabaseArguments,
}

#[derive(Debug, Args)]
pub(crate) struct QueriesArguments {
    /// The account's name
    name: String,
    /// Queries that the clients of the account may use
    #[arg(value_enum)]
    queries: Queries,
    #[command(flatten)]
    database: DatabaseArguments,
}

/// Which queries the clients of an account may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Queries {
    /// The queries of Azure, and more
    Extended,
    /// Only the queries of Azure
    Service,
}

#[derive(Debug, Args)]
pub(crate) struct ResealArguments {
    #[command(flatten)]
    master_key: MasterKeySettings,
    #[command(flatten)]
    database: DatabaseArguments,
}

pub(crate) fn run(command: &AccountCommand) -> Done {
    match command {
        AccountCommand::Add(arguments) => add(arguments),
        AccountCommand::List(database) => run_on(database, Opening::Read, accounts::list, |accounts| {
            list_or("There are no accounts in the database.", accounts.iter().map(columns).collect())
        }),
        AccountCommand::Rotate(arguments) => rotate(arguments),
        AccountCommand::Disable(arguments) => set_disabled(arguments, true),
        AccountCommand::Enable(arguments) => set_disabled(arguments, false),
        AccountCommand::Limit(LimitArguments { name, requests_per_second: limit, database, .. }) => {
            let set = async |store: &Store| accounts::set_limit(store, name, *limit).await;
            run_on(database, Opening::Change, set, |_| match limit {
                Some(limit) => {
                    format!("Limited the account {name} to {limit} requests a second on each server.")
                }
                None => format!("Removed the limit of the account {name}."),
            })
        }
        AccountCommand::Queries(QueriesArguments { name, queries, database }) => {
            let extended = *queries == Queries::Extended;
            let set = async |store: &Store| accounts::set_queries(store, name, extended).await;
            let verb = if extended { "may" } else { "may not" };
            run_on(database, Opening::Change, set, |_| {
                format!("Clients of the account {name} {verb} use extended queries.")
            })
        }
        AccountCommand::Reseal(arguments) => reseal(arguments),
        AccountCommand::Remove(NameArguments { name, database }) => {
            let remove = async |store: &Store| accounts::remove(store, name).await;
            run_on(database, Opening::Change, remove, |_| format!("Removed the account {name}."))
        }
    }
}

/// Runs a command on the accounts of a database, and prints its answer.
fn run_on<T: Serialize>(
    database: &DatabaseArguments,
    opening: Opening,
    work: impl AsyncFnOnce(&Store) -> Result<T, OperatorError>,
    text: impl FnOnce(&T) -> String,
) -> Done {
    database.run(opening, "accounts in memory would be lost when this command ends", work, text)
}

fn require_master_key(settings: &MasterKeySettings) -> Done<MasterKeys> {
    settings.read()?.ok_or_else(|| {
        Problem(
            "--master-key or --master-key-file is required, with the master key of the servers; `openssl \
             rand -base64 32 > master.key` generates a new one"
                .into(),
        )
    })
}

/// A new account with its keys, shown once.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PrintedAccount<'a> {
    connection_string: String,
    keys: [String; 2],
    name: &'a str,
}

fn add(arguments: &AddArguments) -> Done {
    let AddArguments { name, keys_file, endpoint, master_key, database } = arguments;
    let (master, origin) = (require_master_key(master_key)?, endpoint.origin()?);
    let keys = keys_file.as_deref().map(read_keys).transpose()?;
    let add = async |store: &Store| {
        let keys = accounts::add(store, &master, name, keys, Ticks::now()).await?;
        Ok(PrintedAccount { connection_string: connection_string(&origin, name, &keys[0]), keys, name })
    };
    run_on(
        database,
        Opening::Create,
        add,
        |PrintedAccount { connection_string, keys: [first, second], .. }| {
            format!(
                "Added the account {name}. Its keys are not shown again.\n\
             Key 1: {first}\nKey 2: {second}\nConnection string: {connection_string}"
            )
        },
    )
}

fn read_keys(path: &std::path::Path) -> Done<[Vec<u8>; 2]> {
    let wrong = |reason: &str| Problem(format!("--keys-file {}: {reason}", path.display()));
    let text = read_text(path).map_err(|error| wrong(&error.to_string()))?;
    let decoded: Option<Vec<Vec<u8>>> =
        text.split_whitespace().map(|line| STANDARD.decode(line).ok()).collect();
    let keys = decoded.and_then(|keys| <[Vec<u8>; 2]>::try_from(keys).ok());
    keys.ok_or_else(|| wrong("must contain two keys in base64, each on its own line"))
}

fn rotate(arguments: &RotateArguments) -> Done {
    let RotateArguments { name, key: slot, endpoint, master_key, database } = arguments;
    let (master, origin) = (require_master_key(master_key)?, endpoint.origin()?);
    let number = if *slot == KeyNumber::First { 1 } else { 2 };
    let rotate = async |store: &Store| {
        let key = accounts::rotate(store, &master, name, (*slot).into(), Ticks::now()).await?;
        let connection_string = connection_string(&origin, name, &key);
        Ok(RotatedKey { name: name.clone(), slot: number, key, connection_string })
    };
    run_on(database, Opening::Change, rotate, |RotatedKey { key, connection_string, .. }| {
        format!(
            "Made a new key {number} of the account {name}. It is not shown again.\n\
             Key {number}: {key}\nConnection string: {connection_string}"
        )
    })
}

fn set_disabled(NameArguments { name, database }: &NameArguments, disabled: bool) -> Done {
    let done = if disabled { "Disabled" } else { "Enabled" };
    let set = async |store: &Store| accounts::set_disabled(store, name, disabled).await;
    run_on(database, Opening::Change, set, |_| format!("{done} the account {name}."))
}

fn reseal(ResealArguments { master_key, database }: &ResealArguments) -> Done {
    let master = require_master_key(master_key)?;
    let reseal = async |store: &Store| Ok(json!({ "resealed": accounts::reseal(store, &master).await? }));
    run_on(database, Opening::Change, reseal, |answer| match answer["resealed"].as_u64() {
        Some(0) => "Every stored key is encrypted under this master key already.".into(),
        Some(1) => "Encrypted the keys of 1 account under the new master key.".into(),
        many => {
            format!("Encrypted the keys of {} accounts under the new master key.", many.unwrap_or_default())
        }
    })
}

fn columns(account: &AccountReport) -> [String; 3] {
    let state = if account.disabled { "disabled" } else { "enabled" };
    let [first, second] = account.rotated;
    let created = account.created;
    let limit = account.requests_per_second.map(|limit| format!(", at most {limit} requests a second"));
    let limit = limit.unwrap_or_default();
    let queries = if account.extended_queries { ", extended queries" } else { "" };
    let facts = format!("created {created}, key 1 of {first}, key 2 of {second}{limit}{queries}");
    [account.name.clone(), state.to_owned(), facts]
}
