//! The Rowhouse container image.

use super::Account;
use crate::protocol::auth::accounts::connection_string;
use crate::server::start::READY;

/// The Rowhouse container image for Testcontainers (feature `testcontainers`).
///
/// It implements `testcontainers::Image`, so a runner of that crate can start it. Tables are in
/// memory. The image is not published: `docker build -t rowhouse .` builds it.
///
/// ```no_run
/// # #[cfg(feature = "testcontainers")]
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use rowhouse::testing::Image;
/// use testcontainers::runners::AsyncRunner as _;
///
/// let image = Image::new("rowhouse", "latest");
/// let container = image.start().await?;
/// let (host, port) = (container.get_host().await?, container.get_host_port_ipv4(Image::PORT).await?);
/// let connection_string = container.image().connection_string(&host.to_string(), port);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Image {
    name: String,
    tag: String,
    accounts: Vec<Account>,
}

impl Default for Image {
    fn default() -> Self {
        Self::new("rowhouse", "latest")
    }
}

impl Image {
    /// The port inside the container that tables are served on. The image exposes it.
    pub const PORT: u16 = 10_002;
    /// The beginning of the line on standard output that reports that the server is ready.
    pub const READY: &'static str = READY;

    /// Makes an image from a name and a tag, with the development account.
    pub fn new(name: impl Into<String>, tag: impl Into<String>) -> Self {
        Self { name: name.into(), tag: tag.into(), accounts: Vec::new() }
    }

    /// Adds an account. [`Image::connection_string`] is for the first one. Without any, the server
    /// has the development account.
    #[must_use]
    pub fn account(mut self, account: Account) -> Self {
        self.accounts.push(account);
        self
    }

    /// Returns `name:tag`.
    pub fn reference(&self) -> String {
        format!("{}:{}", self.name, self.tag)
    }

    /// Returns the environment variables for the container.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let accounts = match self.accounts.is_empty() {
            true => ("ROWHOUSE_ALLOW_DEVELOPMENT_ACCOUNT", "true".to_owned()),
            false => ("ROWHOUSE_ACCOUNTS", Account::setting(&self.accounts)),
        };
        vec![("DATABASE_URL", "sqlite::memory:".to_owned()), accounts]
    }

    /// Returns the connection string for clients, given the host that the container's ports are
    /// mapped to, and the port that [`Image::PORT`] is mapped to.
    pub fn connection_string(&self, host: &str, port: u16) -> String {
        let development = Account::development();
        let account = self.accounts.first().unwrap_or(&development);
        connection_string(&format!("http://{host}:{port}"), &account.name, &account.key)
    }
}

#[cfg(feature = "testcontainers")]
impl testcontainers::Image for Image {
    fn name(&self) -> &str {
        &self.name
    }

    fn tag(&self) -> &str {
        &self.tag
    }

    fn ready_conditions(&self) -> Vec<testcontainers::core::WaitFor> {
        vec![testcontainers::core::WaitFor::message_on_stdout(Self::READY)]
    }

    fn env_vars(
        &self,
    ) -> impl IntoIterator<Item = (impl Into<std::borrow::Cow<'_, str>>, impl Into<std::borrow::Cow<'_, str>>)>
    {
        self.variables()
    }
}
