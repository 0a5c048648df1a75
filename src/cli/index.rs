//! `rowhouse index …`: manages property indexes of tables.

use std::io::{BufRead as _, IsTerminal as _, Write as _, stderr, stdin};
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::database::{DatabaseArguments, Opening, list_or, read_lasting};
use super::healthcheck::agent;
use super::output::{Done, OutputForm, Problem, block_on, interruption};
use crate::operator::OperatorError;
use crate::operator::indexes::{self, IndexReport, IndexRequest};
use crate::protocol::model::Ticks;
use crate::server::config::{resolve, secret};
use crate::server::http::reachable;
use crate::store::database::{self, DatabaseError};
use crate::store::sqlite::OpenError;
use crate::store::{BuiltIndex, IndexFigures, IndexState, Store, StoredIndex};

const CREATE_EXAMPLES: &str = "Examples:
  rowhouse index create People Email --account myaccount
  rowhouse index create People Age --kind number --account myaccount

Filters that compare the property become fast; their results do not change. On PostgreSQL, clients
read and write while the index is built. On SQLite, writes wait. If you press Ctrl-C, the command
drops the index. After a crash, a server on the database builds the index.";
const SUGGEST_EXAMPLE: &str = "Example:
  rowhouse index suggest --admin-listen 127.0.0.1:10003

The list shows the cost of filters without an index on that server since it started.";

/// The subcommands of `rowhouse index`.
#[derive(Debug, Subcommand)]
pub(crate) enum IndexCommand {
    /// Create an index over a property, so that filters on the property read few entities
    #[command(after_help = CREATE_EXAMPLES)]
    Create(CreateIndexArguments),
    /// List the indexes with their state, size and use
    #[command(after_help = "Example:\n  rowhouse index list --json")]
    List(ListIndexArguments),
    /// Drop the index over a property, even while it is being built
    #[command(after_help = "Example:\n  rowhouse index drop People Email --account myaccount")]
    Drop(IndexArguments),
    /// Suggest indexes for the filters that cost a running server most
    #[command(after_help = SUGGEST_EXAMPLE)]
    Suggest(SuggestArguments),
}

/// The property of an index, and the database.
#[derive(Debug, Args)]
pub(crate) struct IndexArguments {
    #[command(flatten)]
    request: IndexRequest,
    #[command(flatten)]
    database: DatabaseArguments,
}

#[derive(Debug, Args)]
pub(crate) struct CreateIndexArguments {
    #[command(flatten)]
    index: IndexArguments,
    /// Do not ask before a build that makes the writes of a running server wait
    #[arg(long)]
    yes: bool,
}

/// The tables whose indexes are listed or suggested.
#[derive(Debug, Args)]
struct IndexedTables {
    /// The table [default: all tables]
    table: Option<String>,
    /// The account of the tables [default: all accounts]
    #[arg(long)]
    account: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ListIndexArguments {
    #[command(flatten)]
    tables: IndexedTables,
    #[command(flatten)]
    database: DatabaseArguments,
}

/// The arguments of `rowhouse index suggest`.
#[derive(Debug, Args)]
pub(crate) struct SuggestArguments {
    #[command(flatten)]
    tables: IndexedTables,
    /// Address of the admin listener of the server
    #[arg(long, env = "ROWHOUSE_ADMIN_LISTEN")]
    admin_listen: String,
    /// The admin token; not needed if the server lets programs on its machine read without one
    #[arg(long, value_name = "TOKEN", env = "ROWHOUSE_ADMIN_TOKEN", hide_env_values = true)]
    admin_token: Option<String>,
    /// File with the admin token
    #[arg(long, value_name = "FILE", env = "ROWHOUSE_ADMIN_TOKEN_FILE")]
    admin_token_file: Option<std::path::PathBuf>,
    #[command(flatten)]
    form: OutputForm,
}

const SUGGESTION_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause between two checks of a build.
const CHECK_PAUSE: Duration = Duration::from_millis(500);
/// Timeout for the removal of a dropped index from the database.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) fn run(command: &IndexCommand) -> Done {
    match command {
        IndexCommand::Create(arguments) => create(arguments),
        IndexCommand::List(arguments) => list(arguments),
        IndexCommand::Drop(arguments) => drop_index(arguments),
        IndexCommand::Suggest(arguments) => suggest(arguments),
    }
}

const IN_MEMORY: &str = "a database in memory is reachable only through the admin listener of its server";

fn create(arguments: &CreateIndexArguments) -> Done {
    let index = &arguments.index;
    let database = read_lasting(&index.database.storage, IN_MEMORY)?;
    // While this process builds an index in a SQLite file, the lock prevents a server from starting on the file.
    let lock = match database::lock(&database) {
        Err(DatabaseError::Sqlite(OpenError::Served(..))) => None,
        lock => Some(lock?),
    };
    let is_served = lock.is_none();
    if is_served && !arguments.yes {
        confirm()?;
    }
    let begun = Instant::now();
    let (stored, figures) = block_on(async {
        let store = database::open_existing(&database).await?;
        // Handle signals from here on, so that an interruption leaves no unfinished index behind.
        let interrupted = interruption()?;
        let stored = indexes::add(&store, &index.request, Ticks::now()).await?;
        let index_no = stored.index.index_no;
        let built = tokio::select! {
            built = build(&store, &stored, is_served) => built,
            () = interrupted => Err(Problem("interrupted; the index is dropped".into())),
        };
        if let Err(problem) = built {
            return Err(match indexes::drop_index(&store, index_no, Ticks::now()).await {
                Ok(()) | Err(OperatorError::IndexNotFound) => problem,
                Err(error) => Problem(format!(
                    "the index could not be dropped, and servers may build it: {error}; run `rowhouse index \
                     drop`"
                )),
            });
        }
        Ok((
            indexes::find_by_number(&store, index_no).await?,
            store.index_figures(&stored.index).await.map_err(OperatorError::from)?,
        ))
    })?;
    let text =
        format!("Made the index {} in {:.1} s.", describe(&stored, figures), begun.elapsed().as_secs_f64());
    index.database.form.print(&text, &IndexReport::new(&stored, figures))
}

fn confirm() -> Done {
    let warning = "a server uses the SQLite file: while it builds the index, all writes wait, about a second \
                   for each 200 MB of the file, and the server refuses writes that wait for too long as busy";
    if !stdin().is_terminal() {
        return Err(Problem(format!("{warning}; give --yes to build it anyway")));
    }
    let _ = write!(stderr(), "rowhouse: {warning}. Build it? [y/N] ");
    let mut answer = String::new();
    stdin().lock().read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Problem("nothing was done".into())),
    }
}

/// Builds an index in this process, unless a server builds it, and shows the progress.
async fn build(store: &Store, stored: &StoredIndex, is_served: bool) -> Done {
    let show = async {
        loop {
            tokio::time::sleep(CHECK_PAUSE).await;
            if let Ok(IndexFigures { progress: Some(progress), .. }) =
                store.index_figures(&stored.index).await
            {
                let _ = write!(stderr(), "\rrowhouse: {:3.0} % built", progress * 100.0);
            }
        }
    };
    let built = tokio::select! {
        built = wait_until_built(store, stored, is_served) => built,
        never = async { if stderr().is_terminal() { show.await } else { std::future::pending().await } } => never,
    };
    if stderr().is_terminal() {
        let _ = write!(stderr(), "\r\x1b[K");
    }
    built
}

/// Returns once the index is complete, regardless of the process that builds it.
async fn wait_until_built(store: &Store, stored: &StoredIndex, is_served: bool) -> Done {
    let index_no = stored.index.index_no;
    let gone = || Problem("the index was dropped, or its table deleted, while it was built".into());
    loop {
        if !is_served {
            match store.build_index(&stored.index, Ticks::now()).await.map_err(OperatorError::from)? {
                BuiltIndex::Ready => return Ok(()),
                BuiltIndex::Refused(reason) => {
                    return Err(Problem(format!("the database refuses to make the index: {reason}")));
                }
                // A server may have built the index.
                BuiltIndex::Gone | BuiltIndex::Busy => {}
            }
        }
        let found = store.indexes().await.map_err(OperatorError::from)?;
        match found.iter().find(|other| other.index.index_no == index_no).map(|other| other.state) {
            Some(IndexState::Ready) => return Ok(()),
            Some(IndexState::Building) => tokio::time::sleep(CHECK_PAUSE).await,
            None => return Err(gone()),
        }
    }
}

fn drop_index(IndexArguments { request, database }: &IndexArguments) -> Done {
    let (stored, is_removed) = database.ask(Opening::Change, IN_MEMORY, async |store| {
        let stored = indexes::find(store, request).await?;
        indexes::drop_index(store, stored.index.index_no, Ticks::now()).await?;
        let is_removed = remove(store, &stored).await?;
        Ok((stored, is_removed))
    })?;
    let later = if is_removed { "" } else { " A server will free its space." };
    let name = describe(&stored, IndexFigures::default());
    let dropped = json!({ "dropped": stored.index.index_no, "removed": is_removed });
    database.form.print(&format!("Dropped the index {name}.{later}"), &dropped)
}

/// Removes a dropped index once no server uses it. Returns whether the index was removed.
async fn remove(store: &Store, stored: &StoredIndex) -> Result<bool, OperatorError> {
    let begun = Instant::now();
    while store.index_figures(&stored.index).await?.bytes.is_some() {
        if begun.elapsed() > REMOVAL_TIMEOUT {
            return Ok(false);
        }
        tokio::time::sleep(CHECK_PAUSE).await;
        // The removal fails if a server is removing the index already.
        let _ = store.remove_index(Ticks::now()).await;
    }
    Ok(true)
}

fn list(
    ListIndexArguments { tables: IndexedTables { table, account }, database }: &ListIndexArguments,
) -> Done {
    let list = async |store: &Store| indexes::list(store, account.as_deref(), table.as_deref()).await;
    database.run(Opening::Read, IN_MEMORY, list, |found| {
        list_or("There are no indexes.", found.iter().map(columns).collect())
    })
}

fn describe(stored: &StoredIndex, figures: IndexFigures) -> String {
    let StoredIndex { account, table, index, .. } = stored;
    let size = figures.bytes.map(|bytes| format!(", {}", megabytes(bytes))).unwrap_or_default();
    format!("of {account}/{table} over {} ({}{size})", index.property, index.kind)
}

fn columns(index: &IndexReport) -> [String; 6] {
    let IndexReport { account, table, property, kind, since, .. } = index;
    let state = match (index.state, index.progress) {
        (IndexState::Building, Some(progress)) => format!("building, {:.0} %", progress * 100.0),
        (IndexState::Building, None) => "building".into(),
        (IndexState::Ready, _) => "ready".into(),
    };
    let size = index.bytes.map(megabytes).unwrap_or_default();
    let uses = index.uses.map(|uses| format!("read {uses} times, ")).unwrap_or_default();
    let facts = format!("{uses}since {since}");
    [format!("{account}/{table}"), property.clone(), (*kind).to_owned(), state, size, facts]
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

fn suggest(arguments: &SuggestArguments) -> Done {
    let mut found = fetch_suggestions(arguments)?;
    let is_wanted = |suggestion: &Value| {
        let matches = |name: &str, wanted: Option<&str>| {
            wanted.is_none_or(|wanted| suggestion[name].as_str() == Some(wanted))
        };
        let table = arguments.tables.table.as_deref().map(str::to_ascii_lowercase);
        matches("account", arguments.tables.account.as_deref()) && matches("table", table.as_deref())
    };
    found.retain(is_wanted);
    let text = list_or("No filter needs an index.", found.iter().map(suggestion_columns).collect());
    arguments.form.print(&text, &Value::Array(found))
}

fn fetch_suggestions(arguments: &SuggestArguments) -> Done<Vec<Value>> {
    let given = arguments.admin_listen.trim();
    let admin = resolve(given)
        .ok_or_else(|| Problem(format!("--admin-listen {given}: must be an address and a port")))?;
    let url = format!("http://{}/index-suggestions", reachable(admin));
    let mut request = agent(SUGGESTION_TIMEOUT).get(&url);
    let token = secret("--admin-token", &arguments.admin_token, &arguments.admin_token_file)?;
    if let Some(token) = token {
        request = request.header("Authorization", format!("Bearer {token}"));
    }
    let mut answer =
        request.call().map_err(|error| Problem(format!("http://{admin} does not answer: {error}")))?;
    let body = answer.body_mut().read_to_string()?;
    match (answer.status().as_u16(), serde_json::from_str::<Value>(&body)) {
        (200, Ok(Value::Array(found))) => Ok(found),
        (status, Ok(refused)) => {
            let message = refused["error"]["message"].as_str().unwrap_or_default().to_owned();
            Err(Problem(format!("http://{admin} answers {status}: {message}")))
        }
        (status, Err(_)) => Err(Problem(format!("http://{admin} answers {status}"))),
    }
}

fn suggestion_columns(suggestion: &Value) -> [String; 4] {
    let text = |name: &str| suggestion[name].as_str().unwrap_or_default().to_owned();
    let number = |name: &str| suggestion[name].as_u64().unwrap_or_default();
    let (examined, returned, pages) = (number("examined"), number("returned"), number("pages"));
    let cost = format!("{examined} rows examined for {returned} returned, in {pages} pages");
    [format!("{}/{}", text("account"), text("table")), text("property"), text("kind"), cost]
}
