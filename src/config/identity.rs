//! Settings of who may come in by key, and where.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::{ConfigError, Mistakes, address, secret};
use crate::auth::AccountSet;
use crate::auth::seal::{MasterKey, MasterKeys};

/// Where the server is.
#[derive(Debug, Clone, Args)]
pub(crate) struct ListenSettings {
    /// Address and port to listen on; port 0 takes a free one
    #[arg(long, env = "ROWHOUSE_LISTEN", default_value = "127.0.0.1:10002")]
    pub listen: String,
}

impl ListenSettings {
    /// The address, the first if a name has several.
    ///
    /// # Errors
    /// [`ConfigError::Listen`].
    pub(crate) fn address(&self) -> Result<SocketAddr, ConfigError> {
        address(&self.listen).ok_or_else(|| ConfigError::Listen(self.listen.clone()))
    }
}

/// The key of the accounts in the database.
#[derive(Debug, Clone, Args)]
pub(crate) struct MasterKeySettings {
    /// 32 bytes in base64 that encrypt the keys of the accounts in the database, which are served then
    #[arg(long, env = "ROWHOUSE_MASTER_KEY", hide_env_values = true)]
    pub master_key: Option<String>,

    /// File that holds the master key
    #[arg(long, env = "ROWHOUSE_MASTER_KEY_FILE")]
    pub master_key_file: Option<PathBuf>,

    /// The master key of before, while it is being replaced: it opens keys, and encrypts none
    #[arg(long, env = "ROWHOUSE_OLD_MASTER_KEY", hide_env_values = true)]
    pub old_master_key: Option<String>,

    /// File that holds the master key of before
    #[arg(long, env = "ROWHOUSE_OLD_MASTER_KEY_FILE")]
    pub old_master_key_file: Option<PathBuf>,
}

impl MasterKeySettings {
    /// The master key, if there is one, and the one of before.
    ///
    /// # Errors
    /// [`ConfigError`] for a file that cannot be read, for what is no key, and
    /// for a key of before alone.
    pub(crate) fn read(&self) -> Result<Option<MasterKeys>, ConfigError> {
        let now = master_key("--master-key", &self.master_key, &self.master_key_file)?;
        let old = master_key("--old-master-key", &self.old_master_key, &self.old_master_key_file)?;
        match (now, old) {
            (Some(now), old) => Ok(Some(MasterKeys { now, old })),
            (None, None) => Ok(None),
            (None, Some(_)) => Err(ConfigError::OldMasterKey),
        }
    }
}

fn master_key(
    flag: &'static str,
    value: &Option<String>,
    file: &Option<PathBuf>,
) -> Result<Option<MasterKey>, ConfigError> {
    let given = secret(flag, value, file)?;
    given.map(|text| MasterKey::parse(&text).ok_or(ConfigError::MasterKey(flag))).transpose()
}

/// The accounts of the settings.
#[derive(Debug, Clone, Args)]
pub(crate) struct AccountSettings {
    /// name:base64key[:base64key2], several separated by ';' [default: the well-known development account]
    #[arg(long, env = "ROWHOUSE_ACCOUNTS", hide_env_values = true)]
    pub accounts: Option<String>,

    /// File that holds the accounts, separated by ';' or line ends
    #[arg(long, env = "ROWHOUSE_ACCOUNTS_FILE")]
    pub accounts_file: Option<PathBuf>,

    #[command(flatten)]
    pub master_key: MasterKeySettings,
}

/// Who has keys.
#[derive(Debug)]
pub(crate) struct Keyholders {
    /// The accounts of the settings, or else, unless the database's are used,
    /// the well-known one.
    pub accounts: AccountSet,
    pub is_development: bool,
    pub master_key: Option<MasterKeys>,
}

impl AccountSettings {
    /// What the settings say; `None` after a mistake, which is then noted.
    pub(crate) fn read(&self, suffixes: Vec<String>, mistakes: &mut Mistakes) -> Option<Keyholders> {
        let master_key = mistakes.note(self.master_key.read());
        let given = mistakes.note(secret("--accounts", &self.accounts, &self.accounts_file));
        let parsed = match given? {
            Some(text) => {
                let parsed = AccountSet::parse(&text, suffixes.clone()).map_err(ConfigError::Accounts);
                Some(mistakes.note(parsed)?)
            }
            None => None,
        };
        let master_key = master_key?;
        let is_development = parsed.is_none() && master_key.is_none();
        let accounts = match parsed {
            Some(accounts) => accounts,
            None if is_development => AccountSet::development(suffixes),
            None => AccountSet::none(suffixes),
        };
        Some(Keyholders { accounts, is_development, master_key })
    }
}
