//! The FROM and TO of the command line.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use super::dump::{self, MANIFEST};
use crate::client::Address;
use crate::error::{TransferResult, usage};
use crate::protocol::auth::accounts::{DEVELOPMENT_ACCOUNT, is_account_name};
use crate::protocol::codec::uri::percent_decode;
use crate::rows::selection::NameCase;
use crate::store::database::{Database, DatabaseOptions};
use crate::store::sqlite::{Location, SqliteOptions};

/// Maximum bytes of a file that holds a connection string.
const MAX_SECRET_BYTES: u64 = 64 << 10;

#[derive(Debug, Clone)]
pub enum DataLocation {
    Endpoint(Box<Address>),
    /// A database, and an account in it.
    Database(Box<Database>, Option<String>),
    /// A folder with a dump or, read-only, one part of a dump.
    Dump(PathBuf),
    /// A read-only file of another program or a folder of such files, and an account in a file of Azurite.
    File(PathBuf, Option<String>),
    /// Standard input with a file of another program, or standard output.
    Standard,
}

const UNKNOWN: &str = "is neither a connection string, an https:// address with a signature, a sqlite: or postgres: URL, \
     a dump (dump:FOLDER), a file that exists, -, env:NAME nor file:PATH";

impl DataLocation {
    /// Parses an argument. `env:NAME` and `file:PATH` name a variable or file with the actual text, which
    /// keeps secrets out of the list of processes.
    pub fn parse(text: &str) -> TransferResult<Self> {
        if let Some(name) = text.strip_prefix("env:") {
            let value = std::env::var(name).map_err(|_| usage!("{text} is not set"))?;
            return Self::parse_literal(value.trim());
        }
        if let Some(path) = text.strip_prefix("file:") {
            let failed = |error: std::io::Error| usage!("{text}: {error}");
            let size = std::fs::metadata(path).map_err(failed)?.len();
            if size > MAX_SECRET_BYTES {
                return Err(failed(std::io::ErrorKind::FileTooLarge.into()));
            }
            return Self::parse_literal(std::fs::read_to_string(path).map_err(failed)?.trim());
        }
        Self::parse_literal(text)
    }

    fn parse_literal(text: &str) -> TransferResult<Self> {
        if text == "-" {
            return Ok(DataLocation::Standard);
        }
        if let Some(path) = text.strip_prefix("dump:") {
            if path.is_empty() {
                return Err(usage!(
                    "dump: must be followed by the path of a folder, such as dump:/backups/monday"
                ));
            }
            return Ok(DataLocation::Dump(path.into()));
        }
        if ["sqlite:", "postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme)) {
            return Self::parse_database(text);
        }
        if text.starts_with("http://") || text.starts_with("https://") || text.contains('=') {
            return Ok(DataLocation::Endpoint(Box::new(Address::parse(text)?)));
        }
        let path = Path::new(text);
        if path.join(MANIFEST).is_file() {
            return Ok(DataLocation::Dump(path.to_owned()));
        }
        if path.exists() {
            return Ok(DataLocation::File(path.to_owned(), None));
        }
        match text.rsplit_once('#').map(|(path, account)| (Path::new(path), account)) {
            Some((path, account)) if path.exists() => {
                Ok(DataLocation::File(path.to_owned(), Some(parse_account(account)?)))
            }
            _ => Err(usage!("{UNKNOWN}")),
        }
    }

    /// Parses the URL of a database, with the account after `#`. A SQLite file that exists may have `#` in its name.
    fn parse_database(text: &str) -> TransferResult<Self> {
        let parse = |url| {
            // SQLite does not map the file into memory, because a copy reads everything only once.
            let options = DatabaseOptions { sqlite_map_mib: 0, ..DatabaseOptions::default() };
            Database::of_url(url, options).map_err(|error| usage!("{error}"))
        };
        let is_file = text.starts_with("sqlite:") && parse(text)?.missing_file().is_none();
        let (url, account) = match text.rsplit_once('#').filter(|_| !is_file) {
            Some((_, rest)) if rest.contains('@') => {
                return Err(usage!("the text after # is not an account; write %23 for # in a password"));
            }
            Some((url, account)) => (url, Some(parse_account(account)?)),
            None => (text, None),
        };
        Ok(DataLocation::Database(Box::new(parse(url)?), account))
    }

    /// Gives each place that has no account of its own the account of the other place.
    pub fn share_accounts(from: &mut Self, to: &mut Self) {
        let [ours, theirs] = [&*from, &*to].map(|place| place.account().map(str::to_owned));
        for (place, other) in [(from, theirs), (to, ours)] {
            if let DataLocation::Database(_, account) | DataLocation::File(_, account) = place {
                *account = account.take().or(other);
            }
        }
    }

    /// Returns the place without secrets, for messages.
    pub fn display(&self) -> String {
        match self {
            DataLocation::Endpoint(address) => address.tables.clone(),
            DataLocation::Database(database, Some(account)) => format!("{}#{account}", database.display()),
            DataLocation::Database(database, None) => database.display(),
            DataLocation::Dump(path) => format!("dump:{}", path.display()),
            DataLocation::File(path, _) => path.display().to_string(),
            DataLocation::Standard => "-".to_owned(),
        }
    }

    /// Whether both locations name the same place and the same account.
    pub fn is_same(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }

    /// Returns the place and the account without secrets, in a form that is the same for every spelling and in every
    /// working directory.
    pub fn identity(&self) -> String {
        let place = match self {
            DataLocation::Endpoint(address) => return address.identity(),
            DataLocation::Database(database, _) => match &**database {
                Database::Sqlite(SqliteOptions { location: Location::File(path), .. }) => resolve(path),
                database => database.display(),
            },
            DataLocation::Dump(path) | DataLocation::File(path, _) => resolve(path),
            DataLocation::Standard => return self.display(),
        };
        format!("{place}#{}", self.account().unwrap_or(DEVELOPMENT_ACCOUNT))
    }

    /// Whether the place is read like files of other programs, as parts of dumps are.
    pub fn is_read_as_files(&self) -> bool {
        match self {
            DataLocation::File(..) | DataLocation::Standard => true,
            DataLocation::Dump(path) => path.is_file(),
            DataLocation::Endpoint(_) | DataLocation::Database(..) => false,
        }
    }

    /// Whether a copy to the place never finds anything there.
    pub fn begins_empty(&self) -> bool {
        matches!(self, DataLocation::Dump(_) | DataLocation::Standard)
    }

    /// Whether the place is a SQLite file that does not exist yet.
    pub fn is_missing(&self) -> bool {
        matches!(self, DataLocation::Database(database, _) if database.missing_file().is_some())
    }

    pub fn is_standard(&self) -> bool {
        matches!(self, DataLocation::Standard)
    }

    pub fn is_database(&self) -> bool {
        matches!(self, DataLocation::Database(..))
    }

    /// Returns the same database with a different account; other places as they are.
    pub fn with_account(&self, account: &str) -> Self {
        match self {
            DataLocation::Database(database, _) => {
                DataLocation::Database(database.clone(), Some(account.to_owned()))
            }
            other => other.clone(),
        }
    }

    pub fn is_complete_dump(&self) -> bool {
        matches!(self, DataLocation::Dump(path) if path.join(MANIFEST).is_file())
    }

    /// Returns the origin of a complete dump, if its manifest states it.
    pub fn origin(&self) -> TransferResult<Option<String>> {
        match self {
            DataLocation::Dump(folder) => dump::origin(folder),
            _ => Ok(None),
        }
    }

    /// Returns the expiry of the SAS, as the SAS states it.
    pub fn signature_expiry(&self) -> Option<String> {
        match self {
            DataLocation::Endpoint(address) => address.signature_expiry(),
            _ => None,
        }
    }

    /// Whether the place is a secondary region, which may lack the last changes.
    pub fn is_secondary(&self) -> bool {
        matches!(self, DataLocation::Endpoint(address) if address.is_secondary())
    }

    pub fn is_cosmos(&self) -> bool {
        matches!(self, DataLocation::Endpoint(address) if address.is_cosmos())
    }

    pub fn name_case(&self) -> NameCase {
        if self.is_cosmos() { NameCase::Distinguished } else { NameCase::Ignored }
    }

    /// Whether the credentials show only a range of keys, so that the absence of an entity cannot be proved.
    pub fn is_ranged(&self) -> bool {
        matches!(self, DataLocation::Endpoint(address) if address.is_ranged())
    }

    pub fn account(&self) -> Option<&str> {
        match self {
            DataLocation::Endpoint(address) => Some(&address.account),
            DataLocation::Database(_, account) | DataLocation::File(_, account) => account.as_deref(),
            DataLocation::Dump(_) | DataLocation::Standard => None,
        }
    }
}

/// Parses the percent-encoded name of an account.
/// Resolves the symbolic links of a path whose last components may not exist yet.
fn resolve(path: &Path) -> String {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let real = path.ancestors().find_map(|folder| {
        let missing = path.strip_prefix(folder).ok()?;
        Some(folder.canonicalize().ok()?.join(missing))
    });
    // Joining an empty path leaves a slash at the end, which the components do not have.
    real.unwrap_or(path).components().collect::<PathBuf>().display().to_string()
}

fn parse_account(text: &str) -> TransferResult<String> {
    let name = percent_decode(text).filter(|name| is_account_name(name)).map(Cow::into_owned);
    name.ok_or_else(|| {
        usage!("#{text} does not name an account; a name has 3 to 24 lower-case letters and digits")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_part_of_a_place() {
        let parse = |text: &str| DataLocation::parse(text).unwrap();
        for (text, account, shown) in [
            ("sqlite://none.db", None, "sqlite://none.db"),
            ("sqlite://none.db#my%61ccount", Some("myaccount"), "sqlite://none.db#myaccount"),
            ("postgres://u:p@h/db#abc", Some("abc"), "postgres://u@h/db#abc"),
        ] {
            let place = parse(text);
            assert_eq!((place.account(), place.display().as_str()), (account, shown));
        }
        for (text, word) in [
            ("sqlite://none.db#", "# does not name an account"),
            ("sqlite://none.db#A", "#A does not name an account"),
            ("postgres://u:p#word@h/db", "%23"),
        ] {
            let refused = DataLocation::parse(text).unwrap_err().to_string();
            assert!(refused.contains(word) && !refused.contains("word@"), "{refused}");
        }
    }

    #[test]
    fn a_file_that_exists_has_its_whole_text_as_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        for (name, content) in
            [("a.json#abc", "[]"), ("a.json", "[]"), ("t.db#abc", ""), ("w.json", "{\"databaseVersion\":1}")]
        {
            std::fs::write(path(name), content).unwrap();
        }
        let account = |text: &str| DataLocation::parse(text).map(|place| place.account().map(str::to_owned));
        assert_eq!(account(&path("a.json#abc")).unwrap(), None);
        assert_eq!(account(&format!("sqlite://{}", path("t.db#abc"))).unwrap(), None);
        assert_eq!(account(&path("w.json#abc")).unwrap().as_deref(), Some("abc"));
        assert_eq!(account(&path("a.json#def")).unwrap().as_deref(), Some("def"));
    }

    #[test]
    fn a_path_has_the_same_identity_before_and_after_it_exists() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap();
        std::os::unix::fs::symlink(&real, real.join("link")).unwrap();
        let dump = DataLocation::Dump(real.join("link/new/dump"));
        let before = dump.identity();
        std::fs::create_dir_all(real.join("new/dump")).unwrap();
        assert_eq!(dump.identity(), before);
        assert!(dump.is_same(&DataLocation::Dump(real.join("new/./dump/"))), "{before}");
        let relative = DataLocation::Dump("new/dump".into()).identity();
        let absolute = std::env::current_dir().unwrap().join("new/dump");
        assert_eq!(relative, DataLocation::Dump(absolute).identity());
    }

    #[test]
    fn a_place_without_an_account_has_that_of_the_other_place() {
        let shared = |from: &str, to: &str| {
            let [mut from, mut to] = [from, to].map(|text| DataLocation::parse(text).unwrap());
            DataLocation::share_accounts(&mut from, &mut to);
            let account = |place: &DataLocation| place.account().map(str::to_owned);
            ([account(&from), account(&to)], from.is_same(&to))
        };
        let names = |from: &str, to: &str| [from, to].map(|name| Some(name.to_owned()));
        assert_eq!(shared("sqlite://a#abc", "sqlite://b"), (names("abc", "abc"), false));
        assert_eq!(shared("sqlite://a", "http://h/def?sig=x"), (names("def", "def"), false));
        assert_eq!(shared("sqlite://a#abc", "sqlite://a#def"), (names("abc", "def"), false));
        assert_eq!(shared("sqlite://a#abc", "sqlite://a"), (names("abc", "abc"), true));
        assert_eq!(shared("sqlite://a", "sqlite://a"), ([None, None], true));
    }
}
