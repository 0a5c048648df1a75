//! `rowhouse healthcheck`: whether the server of these settings answers, for
//! containers, which have no curl.

use std::time::Duration;

use clap::Args;
use serde_json::json;
use ureq::Agent;
use ureq::tls::TlsConfig;

use super::endpoint::Port;
use super::output::{Done, Form, Problem};

/// Where to ask.
#[derive(Debug, Args)]
pub struct HealthcheckArguments {
    #[command(flatten)]
    port: Port,
    /// Seconds that the answer may take
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=60))]
    timeout: u64,
    #[command(flatten)]
    form: Form,
}

/// Asks the server on this machine.
///
/// # Errors
/// [`Problem`] where nothing answers, or something else.
pub fn run(arguments: &HealthcheckArguments) -> Done {
    let address = arguments.port.listen.address()?;
    if address.port() == 0 {
        return Err(Problem(format!("--listen {address}: the port that the server has taken is not known")));
    }
    let origin = arguments.port.origin()?;
    let status = ask(&origin, Duration::from_secs(arguments.timeout))?;
    arguments.form.print(
        &format!("{origin} answers."),
        &json!({ "healthy": true, "address": origin, "status": status }),
    )
}

/// The status of the answer to a request that needs no credentials. Over HTTPS
/// the certificate does not matter: it is for the name that clients use, and
/// this asks by address.
fn ask(origin: &str, timeout: Duration) -> Done<u16> {
    let tls = TlsConfig::builder().disable_verification(true).build();
    let config = Agent::config_builder()
        .timeout_global(Some(timeout))
        .http_status_as_error(false)
        .proxy(None)
        .max_redirects(0)
        .tls_config(tls);
    let answer = Agent::new_with_config(config.build())
        .get(format!("{origin}/"))
        .call()
        .map_err(|error| Problem(format!("{origin} does not answer: {error}")))?;
    let status = answer.status().as_u16();
    let is_ours = answer.headers().contains_key("x-ms-request-id");
    if !is_ours {
        return Err(Problem(format!("something else answers at {origin}")));
    }
    if status >= 500 {
        return Err(Problem(format!("{origin} answers {status}")));
    }
    Ok(status)
}
