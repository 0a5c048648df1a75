//! `rowhouse index suggest`: asks a running server for the cost of filters without an index.

use std::time::Duration;

use clap::Args;
use serde_json::Value;
use ureq::Agent;

use super::output::{Done, OutputForm, Problem, aligned};
use crate::server::config::{Mistakes, address, secret};
use crate::server::http::reachable;

/// Timeout for the response.
const ANSWER: Duration = Duration::from_secs(10);

/// The arguments of `rowhouse index suggest`.
#[derive(Debug, Args)]
pub(crate) struct SuggestArguments {
    /// The table [default: all tables]
    table: Option<String>,
    /// The account of the tables [default: all accounts]
    #[arg(long)]
    account: Option<String>,
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

/// Prints the suggestions of a server.
pub(crate) fn suggest(arguments: &SuggestArguments) -> Done {
    let mut found = ask(arguments)?;
    let is_wanted = |suggestion: &Value| {
        let is = |name: &str, wanted: Option<&str>| {
            wanted.is_none_or(|wanted| suggestion[name].as_str() == Some(wanted))
        };
        let table = arguments.table.as_deref().map(str::to_ascii_lowercase);
        is("account", arguments.account.as_deref()) && is("table", table.as_deref())
    };
    found.retain(is_wanted);
    let lines: Vec<_> = found.iter().map(columns).collect();
    let text = if lines.is_empty() { "No filter needs an index.".into() } else { aligned(&lines) };
    arguments.form.print(&text, &Value::Array(found))
}

fn ask(arguments: &SuggestArguments) -> Done<Vec<Value>> {
    let given = arguments.admin_listen.trim();
    let admin = address(given)
        .ok_or_else(|| Problem(format!("--admin-listen {given}: must be an address and a port")))?;
    let url = format!("http://{}/index-suggestions", reachable(admin));
    let config = Agent::config_builder()
        .timeout_global(Some(ANSWER))
        .http_status_as_error(false)
        .proxy(None)
        .max_redirects(0);
    let agent = Agent::new_with_config(config.build());
    let mut request = agent.get(&url);
    let token = secret("--admin-token", &arguments.admin_token, &arguments.admin_token_file)
        .map_err(Mistakes::from)?;
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

fn columns(suggestion: &Value) -> [String; 4] {
    let text = |name: &str| suggestion[name].as_str().unwrap_or_default().to_owned();
    let number = |name: &str| suggestion[name].as_u64().unwrap_or_default();
    let (examined, returned, pages) = (number("examined"), number("returned"), number("pages"));
    let cost = format!("{examined} rows examined for {returned} returned, in {pages} pages");
    [format!("{}/{}", text("account"), text("table")), text("property"), text("kind"), cost]
}
