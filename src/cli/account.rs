//! `rowhouse account …`: manages the accounts that are stored in the database.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;

use super::database::{DatabaseArguments, read_lasting};
use super::endpoint::{EndpointSettings, connection_string};
use super::output::{Done, Problem, aligned, block_on};
use crate::operator::accounts;
use crate::operator::reports::{
    AccountLimit, AccountQueries, AccountReport, AccountSwitch, RemovedAccount, RotatedKey,
};
use crate::protocol::auth::seal::{KeySlot, MasterKeys};
use crate::protocol::model::Ticks;
use crate::server::config::MasterKeySettings;
use crate::server::file::read_text;
use crate::store::database::{self, Database};
use crate::store::{AccountOptions, Store, StoredAccount};

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
    List(ListArguments),
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
pub(crate) struct ListArguments {
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

/// The number of a key, as operators write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum KeyNumber {
    #[value(name = "1")]
    First,
    #[value(name = "2")]
    Second,
}

impl From<KeyNumber> for KeySlot {
    fn from(slot: KeyNumber) -> Self {
        match slot {
            KeyNumber::First => KeySlot::First,
            KeyNumber::Second => KeySlot::Second,
        }
    }
}

pub(crate) fn run(command: &AccountCommand) -> Done {
    match command {
        AccountCommand::Add(arguments) => add(arguments),
        AccountCommand::List(arguments) => list(&arguments.database),
        AccountCommand::Rotate(arguments) => rotate(arguments),
        AccountCommand::Disable(arguments) => set_disabled(arguments, true),
        AccountCommand::Enable(arguments) => set_disabled(arguments, false),
        AccountCommand::Limit(arguments) => limit(arguments),
        AccountCommand::Queries(arguments) => set_queries(arguments),
        AccountCommand::Reseal(arguments) => reseal(arguments),
        AccountCommand::Remove(NameArguments { name, database }) => {
            block_on(async { Ok(accounts::remove(&open(database).await?, name).await?) })?;
            database.form.print(&format!("Removed the account {name}."), &RemovedAccount { removed: name })
        }
    }
}

fn settings(arguments: &DatabaseArguments) -> Done<Database> {
    read_lasting(&arguments.storage, "accounts in memory would be lost when this command ends")
}

/// Opens the database, which must already exist.
async fn open(arguments: &DatabaseArguments) -> Done<Store> {
    Ok(database::open_existing(&settings(arguments)?).await?)
}

/// Opens the database, and creates it if it does not exist yet.
async fn open_or_make(arguments: &DatabaseArguments) -> Done<Store> {
    Ok(database::open_primary(&settings(arguments)?).await?)
}

fn needed(settings: &MasterKeySettings) -> Done<MasterKeys> {
    settings.read()?.ok_or_else(|| {
        Problem(
            "--master-key or --master-key-file is required, with the master key of the servers; `openssl \
             rand -base64 32 > master.key` generates a new one"
                .into(),
        )
    })
}

fn add(arguments: &AddArguments) -> Done {
    let AddArguments { name, keys_file, endpoint, master_key, database } = arguments;
    let (master, origin) = (needed(master_key)?, endpoint.origin()?);
    let keys = keys_file.as_deref().map(read_keys).transpose()?;
    let added = block_on(async {
        let store = open_or_make(database).await?;
        Ok(accounts::add(&store, &master, name, keys, Ticks::now()).await?)
    })?;
    let [first, second] = &added.keys;
    let connect = connection_string(&origin, name, first);
    database.form.print(
        &format!(
            "Added the account {name}. Its keys are not shown again.\n\
             Key 1: {first}\nKey 2: {second}\nConnection string: {connect}"
        ),
        &json!({ "name": name, "keys": [first, second], "connectionString": connect }),
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
    let (master, origin) = (needed(master_key)?, endpoint.origin()?);
    let key = block_on(async {
        let store = open(database).await?;
        Ok(accounts::rotate(&store, &master, name, (*slot).into(), Ticks::now()).await?)
    })?;
    let number = if *slot == KeyNumber::First { 1 } else { 2 };
    let connect = connection_string(&origin, name, &key);
    database.form.print(
        &format!(
            "Made a new key {number} of the account {name}. It is not shown again.\n\
             Key {number}: {key}\nConnection string: {connect}"
        ),
        &RotatedKey { name, slot: number, key: &key, connection_string: connect.clone() },
    )
}

fn set_disabled(arguments: &NameArguments, disabled: bool) -> Done {
    let NameArguments { name, database } = arguments;
    block_on(async { Ok(accounts::set_disabled(&open(database).await?, name, disabled).await?) })?;
    let done = if disabled { "Disabled" } else { "Enabled" };
    database.form.print(&format!("{done} the account {name}."), &AccountSwitch { name, disabled })
}

fn limit(arguments: &LimitArguments) -> Done {
    let LimitArguments { name, requests_per_second, database, .. } = arguments;
    block_on(async { Ok(accounts::limit(&open(database).await?, name, *requests_per_second).await?) })?;
    let text = match requests_per_second {
        Some(limit) => format!("Limited the account {name} to {limit} requests a second on each server."),
        None => format!("Removed the limit of the account {name}."),
    };
    database.form.print(&text, &AccountLimit { name, requests_per_second: *requests_per_second })
}

fn set_queries(arguments: &QueriesArguments) -> Done {
    let QueriesArguments { name, queries, database } = arguments;
    let extended = *queries == Queries::Extended;
    block_on(async { Ok(accounts::set_queries(&open(database).await?, name, extended).await?) })?;
    let verb = if extended { "may" } else { "may not" };
    let text = format!("Clients of the account {name} {verb} use extended queries.");
    database.form.print(&text, &AccountQueries { name, extended })
}

fn reseal(arguments: &ResealArguments) -> Done {
    let ResealArguments { master_key, database } = arguments;
    let master = needed(master_key)?;
    let many = block_on(async { Ok(accounts::reseal(&open(database).await?, &master).await?) })?;
    let text = match many {
        0 => "Every stored key is encrypted under this master key already.".into(),
        1 => "Encrypted the keys of 1 account under the new master key.".into(),
        _ => format!("Encrypted the keys of {many} accounts under the new master key."),
    };
    database.form.print(&text, &json!({ "resealed": many }))
}

fn list(database: &DatabaseArguments) -> Done {
    let (found, options) = block_on(async {
        let store = database::open_to_read(&settings(database)?).await?;
        Ok((accounts::list(&store).await?, accounts::options(&store).await?))
    })?;
    let lines: Vec<_> = found.iter().map(|account| columns(account, &options)).collect();
    let text =
        if lines.is_empty() { "There are no accounts in the database.".into() } else { aligned(&lines) };
    database
        .form
        .print(&text, &found.iter().map(|account| AccountReport::new(account, &options)).collect::<Vec<_>>())
}

fn columns(account: &StoredAccount, options: &HashMap<String, AccountOptions>) -> [String; 3] {
    let options = options.get(&account.name);
    let state = if account.disabled { "disabled" } else { "enabled" };
    let [first, second] = account.rotated.map(Ticks::to_canonical);
    let created = account.created.to_canonical();
    let limit = options.and_then(|options| options.requests_per_second);
    let limit = limit.map(|limit| format!(", at most {limit} requests a second")).unwrap_or_default();
    let has_extended = options.is_some_and(|options| options.extended_queries == Some(true));
    let queries = if has_extended { ", extended queries" } else { "" };
    let facts = format!("created {created}, key 1 of {first}, key 2 of {second}{limit}{queries}");
    [account.name.clone(), state.to_owned(), facts]
}
