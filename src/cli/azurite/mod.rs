//! Stands in for Azurite in tools that start its Docker image: accepts its program names and flags, and prints
//! its output lines.

mod placeholder;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, FromArgMatches as _, Parser};

use super::command_line::parse_by_precedence;
use super::serve::{start_logging, warn_of_idle};
use placeholder::{Placeholder, PlaceholderService};

use crate::server::config::Settings;
use crate::server::start::{self, ServeError};
use crate::store::sqlite::obstacle;

/// Serve tables with Azurite's command line. For blobs and queues, a placeholder answers with an empty list.
///
/// Azurite's other flags are accepted and ignored, even those for leniency: Rowhouse is as strict as Azure.
#[derive(Debug, Parser)]
#[command(name = "azurite", version, disable_version_flag = true, rename_all = "camelCase")]
struct AzuriteArguments {
    /// Address of the placeholder for the blob service
    #[arg(long, default_value = "127.0.0.1")]
    blob_host: String,
    /// Its port
    #[arg(long, default_value_t = 10_000)]
    blob_port: u16,
    /// Address of the placeholder for the queue service
    #[arg(long, default_value = "127.0.0.1")]
    queue_host: String,
    /// Its port
    #[arg(long, default_value_t = 10_001)]
    queue_port: u16,
    /// Address of the table service
    #[arg(long, default_value = "127.0.0.1")]
    table_host: String,
    /// Its port
    #[arg(long, default_value_t = 10_002)]
    table_port: u16,
    /// Folder for the data
    #[arg(short, long, default_value = ".")]
    location: PathBuf,
    /// PEM file with the certificate chain of the table service
    #[arg(long, requires = "secret")]
    cert: Option<PathBuf>,
    /// PEM file with the certificate's key
    #[arg(long, requires = "cert", group = "secret")]
    key: Option<PathBuf>,
    /// Password of a PFX file. The server refuses PFX files, with a message that has the command to convert them
    #[arg(long, requires = "cert", group = "secret", hide = true)]
    pwd: Option<String>,
    /// Keep the data in memory only
    #[arg(long)]
    in_memory_persistence: bool,
    /// Print the version
    #[arg(short, long, action = clap::ArgAction::Version)]
    version: Option<bool>,
    #[command(flatten)]
    ignored: Ignored,
}

/// Flags of Azurite that have no effect.
#[derive(Debug, clap::Args)]
#[command(rename_all = "camelCase")]
struct Ignored {
    #[arg(long, hide = true)]
    blob_keep_alive_timeout: Option<u32>,
    #[arg(long, hide = true)]
    queue_keep_alive_timeout: Option<u32>,
    #[arg(long, hide = true)]
    table_keep_alive_timeout: Option<u32>,
    #[arg(short, long, hide = true)]
    silent: bool,
    /// Ignored: bearer tokens are configured with ROWHOUSE_OIDC_ISSUER.
    #[arg(long, hide = true)]
    oauth: Option<String>,
    #[arg(short = 'L', long, hide = true)]
    loose: bool,
    #[arg(short, long, hide = true)]
    debug: Option<PathBuf>,
    #[arg(long, hide = true)]
    skip_api_version_check: bool,
    #[arg(long, hide = true)]
    disable_product_style_url: bool,
    #[arg(long, hide = true)]
    disable_telemetry: bool,
    #[arg(long, hide = true)]
    extent_memory_limit: Option<f64>,
}

/// The name under which the program was started. It determines the services.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProgramName {
    /// All three services.
    Azurite,
    /// The Table service alone.
    AzuriteTable,
}

impl ProgramName {
    /// Returns the name, if it is one of Azurite's program names.
    pub(crate) fn parse(program: &OsString) -> Option<Self> {
        match PathBuf::from(program).file_stem()?.to_str()? {
            "azurite" => Some(ProgramName::Azurite),
            "azurite-table" => Some(ProgramName::AzuriteTable),
            _ => None,
        }
    }
}

/// The settings of Rowhouse into which the flags of Azurite are translated.
#[derive(Debug, Parser)]
struct TranslatedSettings {
    #[command(flatten)]
    settings: Settings,
}

/// The reason why the server did not start.
pub(crate) enum StartProblem {
    Arguments(clap::Error),
    Serve(ServeError),
}

impl<E: Into<ServeError>> From<E> for StartProblem {
    fn from(error: E) -> Self {
        StartProblem::Serve(error.into())
    }
}

pub(crate) fn run(named: ProgramName, arguments: impl Iterator<Item = OsString>) -> Result<(), StartProblem> {
    let line = AzuriteArguments::try_parse_from(arguments).map_err(StartProblem::Arguments)?;
    line.refuse_pfx().map_err(StartProblem::Arguments)?;
    let mut flags = line.as_settings();
    // Azurite has no console, so the console of Rowhouse is off unless the operator has set the variable.
    if std::env::var_os("ROWHOUSE_ADMIN_LISTEN").is_none() {
        flags.extend(["--admin-listen".into(), OsString::new()]);
    }
    let own = parse_by_precedence(&mut TranslatedSettings::command(), &flags);
    let own = own.and_then(|mut matches| TranslatedSettings::from_arg_matches_mut(&mut matches));
    let settings = own.map_err(StartProblem::Arguments)?.settings;
    let config = settings.read().map_err(ServeError::from)?;
    start_logging(&settings)?;
    warn_of_idle(&settings, &config);
    if !line.in_memory_persistence {
        std::fs::create_dir_all(&line.location).map_err(|error| line.folder_error(&error))?;
    }
    let placeholders = match named {
        ProgramName::Azurite => vec![
            (&line.blob_host, reserve(PlaceholderService::Blob, &line.blob_host, line.blob_port)?),
            (&line.queue_host, reserve(PlaceholderService::Queue, &line.queue_host, line.queue_port)?),
        ],
        ProgramName::AzuriteTable => Vec::new(),
    };
    start::run(&config, |listening| {
        let mut lines = String::new();
        for (host, placeholder) in placeholders {
            let (service, address) = (format!("{:?}", placeholder.service), placeholder.address);
            let flag = flag_of(placeholder.service);
            let failed = |error| ServeError::Listen { flag, address: address.to_string(), error };
            placeholder.answer().map_err(failed)?;
            lines.push_str(&named.ready_lines(&service, "http", host, address.port()));
        }
        let scheme = if line.cert.is_some() { "https" } else { "http" };
        lines.push_str(&named.ready_lines("Table", scheme, &line.table_host, listening.address.port()));
        let mut out = io::stdout().lock();
        let _ = out.write_all(lines.as_bytes());
        let _ = out.flush();
        Ok(())
    })?;
    Ok(())
}

impl AzuriteArguments {
    fn folder_error(&self, error: &io::Error) -> ServeError {
        let missing = self.location.ancestors().take_while(|path| !path.exists()).last();
        let cause = missing.and_then(obstacle).unwrap_or_else(|| error.to_string());
        ServeError::Folder(self.location.display().to_string(), cause)
    }

    /// Refuses a PFX file, and names the command that converts the file to PEM.
    fn refuse_pfx(&self) -> Result<(), clap::Error> {
        let (Some(pfx), Some(_)) = (&self.cert, &self.pwd) else { return Ok(()) };
        let pem = pfx.with_extension("pem");
        let (pfx, pem) = (pfx.display(), pem.display());
        let message = format!(
            "--cert, --pwd: certificates are read from PEM files, and {pfx} is a PFX file: convert it with \
             `openssl pkcs12 -in '{pfx}' -nodes -out '{pem}'` (add -legacy if it is encrypted with RC2), \
             then start with --cert '{pem}' --key '{pem}'\n"
        );
        Err(Self::command().error(ErrorKind::InvalidValue, message))
    }

    fn as_settings(&self) -> Vec<OsString> {
        let database = if self.in_memory_persistence {
            "sqlite::memory:".into()
        } else {
            let mut url = OsString::from("sqlite://");
            url.push(self.location.join("rowhouse.db"));
            url
        };
        // Tools for Azurite expect the development account on every address.
        let fixed = ["azurite", "--allow-development-account", "--listen"];
        let mut flags: Vec<OsString> = fixed.map(Into::into).to_vec();
        flags.push(format!("{}:{}", self.table_host, self.table_port).into());
        flags.push("--database-url".into());
        flags.push(database);
        if let (Some(certificate), Some(key)) = (&self.cert, &self.key) {
            flags.extend(["--tls-cert".into(), certificate.into(), "--tls-key".into(), key.into()]);
        }
        if let Some(accounts) = std::env::var_os("AZURITE_ACCOUNTS").filter(|accounts| !accounts.is_empty()) {
            flags.push("--accounts".into());
            flags.push(accounts);
        }
        flags
    }
}

fn reserve(service: PlaceholderService, host: &str, port: u16) -> Result<Placeholder, ServeError> {
    let flag = flag_of(service);
    service.reserve(host, port).map_err(|error| ServeError::Listen {
        flag,
        address: format!("{host}:{port}"),
        error,
    })
}

const fn flag_of(service: PlaceholderService) -> &'static str {
    match service {
        PlaceholderService::Blob => "--blobPort",
        PlaceholderService::Queue => "--queuePort",
    }
}

impl ProgramName {
    /// Returns the lines that tools wait for, in Azurite's exact words.
    fn ready_lines(self, service: &str, scheme: &str, host: &str, port: u16) -> String {
        match self {
            ProgramName::Azurite => format!(
                "Azurite {service} service is starting at {scheme}://{host}:{port}\n\
                 Azurite {service} service is successfully listening at {scheme}://{host}:{port}\n"
            ),
            ProgramName::AzuriteTable => format!(
                "Azurite {service} service is starting on {host}:{port}\n\
                 Azurite {service} service successfully started on {host}:{port}\n"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(arguments: &[&str]) -> Result<Vec<String>, String> {
        let line = AzuriteArguments::try_parse_from([&["azurite"], arguments].concat())
            .map_err(|e| e.to_string())?;
        Ok(line.as_settings().into_iter().map(|f| f.into_string().unwrap()).collect())
    }

    #[test]
    fn lines_of_known_tools_are_understood() {
        for line in [
            "--blobHost 0.0.0.0 --queueHost 0.0.0.0 --tableHost 0.0.0.0 --inMemoryPersistence --extentMemoryLimit 512",
            "--blobHost 0.0.0.0 --blobPort 10000 --queueHost 0.0.0.0 --queuePort 10001 --tableHost 0.0.0.0 \
             --tablePort 10002 --skipApiVersionCheck",
            "-l /data --blobHost 0.0.0.0 --queueHost 0.0.0.0 --tableHost 0.0.0.0 --disableProductStyleUrl \
             --skipApiVersionCheck",
            "--oauth basic --cert c.pem --key k.pem",
            "--oauth basic --cert c.pfx --pwd secret",
            "-s -L -d debug.log --loose --silent --disableTelemetry --tableKeepAliveTimeout 5",
        ] {
            let words: Vec<&str> =
                line.split_whitespace().filter(|w| *w != "--loose" && *w != "--silent").collect();
            assert!(flags(&words).is_ok(), "{line}: {:?}", flags(&words));
        }
        for wrong in [
            &["--nonsense"][..],
            &["--cert", "c.pem"],
            &["--key", "k.pem"],
            &["--pwd", "p"],
            &["--cert", "c.pfx", "--key", "k.pem", "--pwd", "p"],
        ] {
            assert!(flags(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(
            flags(&["--cert", "c.pem", "--key", "k.pem"]).unwrap()[6..],
            ["--tls-cert", "c.pem", "--tls-key", "k.pem"]
        );
        assert_eq!(
            flags(&["-l", "/data", "--tablePort", "1", "--tableHost", "h"]).unwrap()[2..],
            ["--listen", "h:1", "--database-url", "sqlite:///data/rowhouse.db"]
        );
        assert_eq!(flags(&["--inMemoryPersistence"]).unwrap()[5], "sqlite::memory:");
    }

    #[test]
    fn names_tell_what_is_wanted() {
        for (program, named) in [
            ("azurite", Some(ProgramName::Azurite)),
            ("/usr/local/bin/azurite", Some(ProgramName::Azurite)),
            ("azurite-table", Some(ProgramName::AzuriteTable)),
            ("rowhouse", None),
            ("", None),
        ] {
            assert_eq!(ProgramName::parse(&program.into()), named, "{program}");
        }
    }
}
