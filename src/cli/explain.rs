//! `rowhouse explain`: explains how the server answers a query, and measures its cost.

use std::fmt::Write as _;

use clap::Args;

use super::output::{Done, OutputForm, Problem, block_on};
use crate::error::Error;
use crate::operator::indexes::IndexCatalog;
use crate::protocol::odata::Grammar;
use crate::server::config::{AccountSettings, DatabaseSettings, Mistakes, QuerySettings};
use crate::service::{ExplainRequest, ExplainedQuery, NamedIndex, explain_query};
use crate::store::Store;
use crate::store::database;

/// The arguments of `rowhouse explain`.
#[derive(Debug, Args)]
pub(crate) struct ExplainArguments {
    /// The table
    table: String,
    /// The filter, as in $filter [default: none]
    #[arg(default_value = "", hide_default_value = true)]
    filter: String,
    /// The account of the table [default: the first account in the settings]
    #[arg(long, env = "ROWHOUSE_ACCOUNT")]
    account: Option<String>,
    /// The order of the entities, as in $orderby [default: ascending keys]
    #[arg(long, value_name = "ORDER")]
    orderby: Option<String>,
    /// Maximum entities in the page, 1 to 1000
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    top: Option<u32>,
    #[command(flatten)]
    accounts: AccountSettings,
    #[command(flatten)]
    queries: QuerySettings,
    #[command(flatten)]
    storage: DatabaseSettings,
    #[command(flatten)]
    form: OutputForm,
}

/// Reads one page of the query, and prints the access path and the cost.
pub(crate) fn run(arguments: &ExplainArguments) -> Done {
    let mut mistakes = Mistakes::default();
    let holders = arguments.accounts.read(Vec::new(), &mut mistakes);
    let database = arguments.storage.read(&mut mistakes);
    let (mut holders, database) = mistakes.into_result(holders.zip(database))?;
    arguments.queries.apply(&mut holders.accounts)?;
    let given = arguments.account.clone().filter(|name| !name.is_empty());
    let account = given.or_else(|| holders.accounts.sample().map(|(name, _)| name.to_owned()));
    let account = account
        .ok_or_else(|| Problem("--account is required, because the settings name no account".into()))?;
    let explained = block_on(async {
        let store = database::open_to_read(&database).await?;
        let extended_by_default = holders.accounts.has_extended_queries(&account);
        let explained = explain(&store, arguments, &account, extended_by_default).await;
        store.close().await;
        explained.map_err(|error| Problem(error.reason_or_text().to_owned()))
    })?;
    arguments.form.print(&text(&explained), &explained)
}

/// Explains the query. `extended_by_default` states whether the settings allow extended queries for the account.
async fn explain(
    store: &Store,
    arguments: &ExplainArguments,
    account: &str,
    extended_by_default: bool,
) -> Result<ExplainedQuery, Error> {
    /// The maximum that a server may allow.
    const MAX_COMPARISONS: usize = 10_000;
    let request = ExplainRequest {
        account: account.to_owned(),
        table: arguments.table.clone(),
        filter: Some(arguments.filter.clone()),
        select: None,
        orderby: arguments.orderby.clone(),
        top: arguments.top,
        measure: true,
    };
    let indexes = IndexCatalog::new(store.indexes().await?);
    let options = store.account_options().await?.into_iter().find(|options| options.name == account);
    let extended = options.and_then(|options| options.extended_queries).unwrap_or(extended_by_default);
    let grammar = Grammar { max_comparisons: MAX_COMPARISONS, extended };
    explain_query(store, &indexes, grammar, &request).await
}

fn index_names(indexes: Option<&[NamedIndex]>) -> Option<String> {
    let name = |NamedIndex { property, kind }: &NamedIndex| format!("{property} ({kind})");
    Some(indexes?.iter().map(name).collect::<Vec<_>>().join(", "))
}

fn text(explained: &ExplainedQuery) -> String {
    let mut text = explained.summary.clone();
    let verb = if explained.index.is_none() { "Reads" } else { "Within" };
    for span in &explained.spans {
        let _ = write!(text, "\n{verb}: {}", span.words);
    }
    if explained.span_count > explained.spans.len() {
        let _ = write!(text, "\n{verb}: … {} ranges in all", explained.span_count);
    }
    if let Some(names) = index_names(explained.index.as_deref()) {
        let _ = write!(text, "\nIndex: {names}");
    }
    if let Some(names) = index_names(explained.index_passed_over.as_deref()) {
        let _ = write!(text, "\nIndex: none, since {names} would name too many entities");
    }
    if let Some(residual) = &explained.residual {
        let _ = write!(text, "\nCompares: {residual}");
    }
    if let Some(advice) = &explained.advice {
        let _ = write!(text, "\n{advice}");
    }
    let Some(cost) = &explained.cost else { return text };
    let at_least = if cost.rows_looked_at_is_exact { "" } else { "at least " };
    let more = if cost.more { "; there are more pages" } else { "" };
    let _ = write!(
        text,
        "\nA page: {} entities of {at_least}{} that were examined, in {:.1} ms{more}",
        cost.rows_returned, cost.rows_looked_at, cost.milliseconds,
    );
    text
}
