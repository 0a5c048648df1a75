//! `rowhouse sas inspect`: explains the permissions of a SAS, and every reason for its refusal.

use std::fmt::Write as _;
use std::net::IpAddr;

use clap::Args;

use super::output::{Done, OutputForm, Problem, block_on};
use super::signer::KeyArguments;
use crate::error::Error;
use crate::protocol::auth::explain_sas::{SasField, SasProblem, SasQuestion, SasReport, SasScope};
use crate::protocol::auth::sas::Use;
use crate::protocol::codec::policies::Policy;
use crate::protocol::model::{TableName, Ticks};
use crate::service::stored_policies;
use crate::store::database;

/// The arguments of `rowhouse sas inspect`.
#[derive(Debug, Args)]
pub(crate) struct InspectArguments {
    /// The URL with the token, or the token
    url: String,
    /// Also check a request with this method: GET, POST, PUT, MERGE, PATCH or DELETE
    #[arg(long)]
    method: Option<String>,
    /// Path of the request, below the account [default: the path of the URL]
    #[arg(long)]
    resource: Option<String>,
    /// Address of the client [default: an address that the token allows]
    #[arg(long)]
    address: Option<IpAddr>,
    /// Assume that the client uses plain HTTP [default: the scheme of the URL]
    #[arg(long)]
    http: bool,
    #[command(flatten)]
    key: KeyArguments,
    #[command(flatten)]
    form: OutputForm,
}

/// Inspects a token with an account key. If the token names a stored policy, the policies are read from the
/// database in the settings.
pub(crate) fn run(arguments: &InspectArguments) -> Done {
    let (is_fine, inspection) = block_on(inspect(arguments))?;
    arguments.form.print(&text(&inspection), &inspection)?;
    if is_fine { Ok(()) } else { Err(Problem("the token is refused".into())) }
}

async fn inspect(arguments: &InspectArguments) -> Done<(bool, SasReport)> {
    let signer = arguments.key.signer().await?;
    let url = arguments.url.as_str();
    let question = SasQuestion::new(url, Some(&signer.account), |_| false);
    let mut question = question.ok_or_else(|| Problem("the URL names no account".into()))?;
    question.method = arguments.method.clone();
    question.resource = arguments.resource.clone().unwrap_or(question.resource);
    let claim = question.claim().map_err(problem)?;
    let policies = match claim.policy() {
        None => Vec::new(),
        Some((table, _)) => policies(arguments, &signer.account, table).await?,
    };
    let secure = !arguments.http && !url.starts_with("http:");
    let usage = Use { now: Ticks::now(), secure, peer: arguments.address };
    let inspection = question.inspect(claim, &[signer.key], &policies, &usage).map_err(problem)?;
    Ok((inspection.is_fine(), inspection.report()))
}

async fn policies(arguments: &InspectArguments, account: &str, table: &TableName) -> Done<Vec<Policy>> {
    let store = database::open_to_read(&arguments.key.database()?).await?;
    let policies = stored_policies(&store, account, table).await;
    store.close().await;
    policies.map_err(problem)
}

fn problem(error: Error) -> Problem {
    Problem(error.reason_or_text().to_owned())
}

/// Returns the inspection for display.
fn text(inspection: &SasReport) -> String {
    let of_table = if inspection.kind == SasScope::Table { "a table of " } else { "" };
    let mut text = format!("A SAS for {of_table}the account {}", inspection.account);
    for SasField { name, value, meaning } in &inspection.fields {
        let _ = write!(text, "\n{name}={value}: {meaning}");
    }
    let _ = write!(text, "\nSigned text: {:?}", inspection.string_to_sign);
    for SasProblem { code, message } in &inspection.problems {
        let _ = write!(text, "\nRefused: {code}: {message}");
    }
    if let Some(action) = &inspection.action {
        text += &match &action.problem {
            None => format!("\nAllows to {}", action.name),
            Some(problem) => format!("\nDoes not allow to {}: {}", action.name, problem.message),
        };
    }
    if inspection.valid {
        text += "\nValid now";
    }
    text
}
