//! `rowhouse sas …`: signs SAS tokens for clients without a key, and explains their permissions and every reason
//! for their refusal.

use std::fmt::Write as _;
use std::net::IpAddr;

use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};

use super::endpoint::{EndpointSettings, KeyArguments, Signer};
use super::output::{Done, OutputForm, Problem, block_on, warn};
use crate::error::Error;
use crate::protocol::auth::explain_sas::{SasField, SasProblem, SasQuestion, SasReport, SasScope};
use crate::protocol::auth::issue::{Grant, SasSubject, at_or_after};
use crate::protocol::auth::sas::Use;
use crate::protocol::codec::policies::{Policy, read_time};
use crate::protocol::model::{TableName, Ticks};
use crate::server::admin::SignedSas;
use crate::service::stored_policies;
use crate::store::database;

const TABLE_EXAMPLES: &str = "Examples:
  rowhouse sas table People --permissions r --expiry 12h
  rowhouse sas table People --permissions raud --expiry 2030-01-31 --start-pk jones --end-pk jones --url
  rowhouse sas table People --policy readers --account myaccount --key-file key1.txt";
const ACCOUNT_EXAMPLES: &str = "Examples:
  rowhouse sas account --permissions rl --expiry 7d
  rowhouse sas account --permissions rwdlacu --expiry 1h --protocol https --url --endpoint https://tables.example.com";

const INSPECT_EXAMPLES: &str = "Examples:
  rowhouse sas inspect 'sv=2019-02-02&tn=People&se=2030-01-01&sp=r&sig=…'
  rowhouse sas inspect 'https://tables.example.com/myaccount/People?sv=…' --method POST --address 10.0.0.5";

/// The subcommands of `rowhouse sas`.
#[derive(Debug, Subcommand)]
pub(crate) enum SasCommand {
    /// Print a token for one table, or for a range of its keys
    #[command(after_help = TABLE_EXAMPLES)]
    Table(TableArguments),
    /// Print a token for an account's tables
    #[command(after_help = ACCOUNT_EXAMPLES)]
    Account(AccountArguments),
    /// Print what a token allows, and every reason why servers refuse it; exit with status 1 if they do
    #[command(after_help = INSPECT_EXAMPLES)]
    Inspect(InspectArguments),
}

#[derive(Debug, Args)]
pub(crate) struct TableArguments {
    /// The table
    table: String,
    /// Permissions, any of r (read), a (add), u (update), d (delete); optional if the policy has permissions
    #[arg(long)]
    permissions: Option<String>,
    /// Name of a stored access policy of the table
    #[arg(long)]
    policy: Option<String>,
    /// First partition key
    #[arg(long)]
    start_pk: Option<String>,
    /// First row key, in the first partition
    #[arg(long)]
    start_rk: Option<String>,
    /// Last partition key
    #[arg(long)]
    end_pk: Option<String>,
    /// Last row key, in the last partition
    #[arg(long)]
    end_rk: Option<String>,
    #[command(flatten)]
    common: SasArguments,
}

#[derive(Debug, Args)]
pub(crate) struct AccountArguments {
    /// Permissions, any of r (read), w (write), d (delete), l (list), a (add), c (create), u (update)
    #[arg(long)]
    permissions: Option<String>,
    /// Services: t (tables), and also b (blobs), q (queues), f (files)
    #[arg(long, default_value = "t")]
    services: String,
    /// Resource types: s (service), c (tables), o (entities)
    #[arg(long, default_value = "sco")]
    resource_types: String,
    #[command(flatten)]
    common: SasArguments,
}

/// The arguments of both kinds of tokens.
#[derive(Debug, Args)]
struct SasArguments {
    /// End of the token's validity: a time such as 2030-01-31T12:00:00Z, or a duration from now such as 90s,
    /// 15m, 12h or 30d
    #[arg(long)]
    expiry: Option<String>,
    /// Start of the token's validity, in the same form as --expiry [default: now]
    #[arg(long)]
    start: Option<String>,
    /// Client addresses that may use the token: one address, or a range LOW-HIGH
    #[arg(long)]
    ip: Option<String>,
    /// Protocols that may be used with the token: https, or https,http [default: https,http]
    #[arg(long)]
    protocol: Option<String>,
    /// Version of the Azure Storage API whose rules apply to the token
    #[arg(long, default_value = "2019-02-02", value_name = "DATE")]
    sas_version: String,
    /// Print the whole URL instead of the token alone
    #[arg(long)]
    url: bool,
    #[command(flatten)]
    endpoint: EndpointSettings,
    #[command(flatten)]
    key: KeyArguments,
    #[command(flatten)]
    form: OutputForm,
}

pub(crate) fn run(command: &SasCommand) -> Done {
    match command {
        SasCommand::Table(arguments) => {
            let TableArguments { table, permissions, policy, start_pk, start_rk, end_pk, end_rk, common } =
                arguments;
            let subject = SasSubject::Table {
                table: table.clone(),
                policy: policy.clone(),
                start: (start_pk.clone(), start_rk.clone()),
                end: (end_pk.clone(), end_rk.clone()),
            };
            common.issue(subject, permissions, &format!("/{table}"))
        }
        SasCommand::Account(AccountArguments { permissions, services, resource_types, common }) => {
            let subject =
                SasSubject::Account { services: services.clone(), resources: resource_types.clone() };
            common.issue(subject, permissions, "")
        }
        SasCommand::Inspect(arguments) => print_inspection(arguments),
    }
}

impl SasArguments {
    fn issue(&self, subject: SasSubject, permissions: &Option<String>, path: &str) -> Done {
        let now = Utc::now();
        let grant = Grant {
            subject,
            permissions: permissions.clone(),
            start: self.start.as_deref().map(|text| at_or_after(text, now)).transpose()?,
            expiry: self.expiry.as_deref().map(|text| at_or_after(text, now)).transpose()?,
            ip: self.ip.clone(),
            protocol: self.protocol.clone(),
            version: self.sas_version.clone(),
        };
        let signer = block_on(self.key.signer())?;
        let token = grant.sign(&signer.account, &signer.key)?;
        let url = format!("{}?{token}", self.address(&signer, path)?);
        let expiry = grant.expiry.as_deref().filter(|text| has_passed(text, now));
        if let Some(expiry) = expiry {
            warn(&format!("--expiry {expiry} has passed: no server accepts this token"));
        }
        let signed = SignedSas { account: signer.account, token, url };
        self.form.print(if self.url { &signed.url } else { &signed.token }, &signed)
    }

    /// Returns the address that the token is for: `--endpoint`, the endpoint in the connection string, or the
    /// address that the server listens on.
    fn address(&self, signer: &Signer, path: &str) -> Done<String> {
        let tables = match (&self.endpoint.endpoint, &signer.tables) {
            (None, Some(tables)) => tables.clone(),
            _ => format!("{}/{}", self.endpoint.origin()?, signer.account),
        };
        // Without a path, the query needs a slash before it.
        let is_host = tables.split_once("://").is_some_and(|(_, rest)| !rest.contains('/'));
        let path = if is_host && path.is_empty() { "/" } else { path };
        Ok(format!("{tables}{path}"))
    }
}

fn has_passed(text: &str, now: DateTime<Utc>) -> bool {
    read_time(text).is_some_and(|time| time <= Ticks::from_utc(now))
}

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
fn print_inspection(arguments: &InspectArguments) -> Done {
    let inspection = block_on(inspect(arguments))?;
    arguments.form.print(&inspection_text(&inspection), &inspection)?;
    if inspection.is_fine() { Ok(()) } else { Err(Problem("the token is refused".into())) }
}

async fn inspect(arguments: &InspectArguments) -> Done<SasReport> {
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
    question.inspect(&claim, &[signer.key], &policies, &usage).map_err(problem)
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

fn inspection_text(inspection: &SasReport) -> String {
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
