//! `rowhouse healthcheck`: checks whether the server with these settings is ready. It is meant for
//! containers, which have no curl.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use ureq::Agent;
use ureq::tls::TlsConfig;

use super::endpoint::Port;
use super::output::{Done, OutputForm, Problem};
use crate::server::config::resolve;
use crate::server::http::reachable;

/// The arguments of `rowhouse healthcheck`.
#[derive(Debug, Args)]
pub(crate) struct HealthcheckArguments {
    #[command(flatten)]
    port: Port,
    /// Address of the admin listener; if given, the server must answer /readyz there with 200
    #[arg(long, env = "ROWHOUSE_ADMIN_LISTEN")]
    admin_listen: Option<String>,
    /// Maximum seconds to wait for the answer
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=60))]
    timeout: u64,
    #[command(flatten)]
    form: OutputForm,
}

/// The parts of a response that the check uses.
struct ProbeAnswer {
    status: u16,
    /// Whether the response has a request id, like every response of Rowhouse to clients.
    has_request_id: bool,
}

pub(crate) fn run(arguments: &HealthcheckArguments) -> Done {
    let agent = agent(Duration::from_secs(arguments.timeout));
    match arguments.admin_address()? {
        Some(admin) => match ask(&agent, &format!("http://{admin}/readyz")) {
            Ok(answer) => arguments.judge_readiness(admin, &answer),
            // A flag may have given the server a different admin address, or none.
            Err(ureq::Error::Io(error)) if error.kind() == ErrorKind::ConnectionRefused => {
                arguments.ask_port(&agent)
            }
            Err(error) => Err(Problem(format!("http://{admin} does not answer: {error}"))),
        },
        None => arguments.ask_port(&agent),
    }
}

impl HealthcheckArguments {
    /// Returns the address of the admin listener, if its port is known.
    fn admin_address(&self) -> Done<Option<SocketAddr>> {
        let Some(given) = self.admin_listen.as_deref().map(str::trim).filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        let admin = resolve(given)
            .ok_or_else(|| Problem(format!("--admin-listen {given}: must be an address and a port")))?;
        Ok(Some(reachable(admin)).filter(|admin| admin.port() != 0))
    }

    /// Reports ready if `/readyz` answered 200, as it does while the database answers.
    fn judge_readiness(&self, admin: SocketAddr, answer: &ProbeAnswer) -> Done {
        match answer.status {
            200 => self.report(&format!("http://{admin}"), 200, "is ready"),
            status => {
                Err(Problem(format!("the server at http://{admin} is not ready: /readyz answers {status}")))
            }
        }
    }

    /// Checks the port for clients. Its response does not show whether the database answers.
    fn ask_port(&self, agent: &Agent) -> Done {
        let listen = self.port.listen.address()?;
        if listen.port() == 0 {
            return Err(Problem(format!(
                "--listen {listen}: the server chose a port that this command cannot know; give the actual \
                 port"
            )));
        }
        let origin = self.port.origin()?;
        let answer = ask(agent, &format!("{origin}/"))
            .map_err(|error| Problem(format!("{origin} does not answer: {error}")))?;
        if !answer.has_request_id {
            return Err(Problem(format!("something else answers at {origin}")));
        }
        match answer.status {
            status if status >= 500 => Err(Problem(format!("{origin} answers {status}"))),
            status => self.report(&origin, status, "answers"),
        }
    }

    fn report(&self, origin: &str, status: u16, does: &str) -> Done {
        let value = json!({ "healthy": true, "address": origin, "status": status });
        self.form.print(&format!("{origin} {does}."), &value)
    }
}

/// Makes a client that does not verify certificates. They contain the host name that clients use, while this
/// client uses an address.
pub(super) fn agent(timeout: Duration) -> Agent {
    let tls = TlsConfig::builder().disable_verification(true).build();
    let config = Agent::config_builder()
        .timeout_global(Some(timeout))
        .http_status_as_error(false)
        .proxy(None)
        .max_redirects(0)
        .tls_config(tls);
    Agent::new_with_config(config.build())
}

fn ask(agent: &Agent, url: &str) -> Result<ProbeAnswer, ureq::Error> {
    let answer = agent.get(url).call()?;
    let has_request_id = answer.headers().contains_key("x-ms-request-id");
    Ok(ProbeAnswer { status: answer.status().as_u16(), has_request_id })
}
