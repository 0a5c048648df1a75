//! A client that speaks as the SDKs do unless told otherwise.

use std::sync::Arc;

use serde_json::Value;
use tokio_rustls::rustls::ClientConfig;

use super::answer::{Answer, Asked};
use super::http::Wire;
use super::server;
use super::sign::{Signed, http_date};
use super::table::Table;

/// An account and its two keys.
#[derive(Debug, Clone)]
pub struct Account {
    pub name: String,
    pub keys: [String; 2],
}

impl Account {
    /// As `--accounts` takes it.
    pub fn setting(&self) -> String {
        format!("{}:{}:{}", self.name, self.keys[0], self.keys[1])
    }
}

/// How a request proves who sent it.
#[derive(Debug, Clone)]
pub enum Auth {
    SharedKey,
    SharedKeyLite,
    /// SharedKey with the account's second key.
    SecondKey,
    /// This value of `Authorization`.
    Header(String),
    None,
}

/// One account of one server.
pub struct Client {
    wire: Wire,
    host: String,
    /// Path before every resource: `/account` in path style.
    root: String,
    /// The shared access signature that stands in every query, in place of a
    /// signature by key.
    token: Option<String>,
    pub account: Account,
}

impl Client {
    /// Sets one CORS rule: pages of this origin may read.
    #[track_caller]
    pub fn allow_origin(&self, origin: &str) {
        let body = format!(
            "<StorageServiceProperties><Cors><CorsRule><AllowedMethods>GET</AllowedMethods>\
             <AllowedOrigins>{origin}</AllowedOrigins><AllowedHeaders/><ExposedHeaders/>\
             <MaxAgeInSeconds>1</MaxAgeInSeconds></CorsRule></Cors></StorageServiceProperties>"
        );
        let request = self.request("PUT", "/?restype=service&comp=properties");
        request.header("Accept", "application/xml").body(body).send().expect(202);
    }

    /// A client of any server.
    pub fn new(address: String, host: String, root: String, account: Account) -> Self {
        Self { wire: Wire::new(address), host, root, token: None, account }
    }

    /// `http://address/account`.
    pub fn path_style(address: &str, account: Account) -> Self {
        Self::new(address.to_owned(), address.to_owned(), format!("/{}", account.name), account)
    }

    /// `https://address/account`.
    pub fn over_tls(address: &str, account: Account, tls: Arc<ClientConfig>) -> Self {
        Self { wire: Wire::over_tls(address, tls), ..Self::path_style(address, account) }
    }

    /// The same once more, with connections of its own.
    pub fn same(&self) -> Self {
        let (address, host, root) = (self.wire.address().into(), self.host.clone(), self.root.clone());
        let plain = Self::new(address, host, root, self.account.clone());
        match self.wire.tls() {
            None => plain,
            Some(tls) => Self { wire: Wire::over_tls(self.wire.address(), Arc::clone(tls)), ..plain },
        }
    }

    /// A client that has nothing but this shared access signature.
    pub fn bearing(&self, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..self.same() }
    }

    /// A client of another account of the same server, if it is one of ours.
    pub fn neighbour(&self) -> Option<Self> {
        let number: usize = self.account.name.strip_prefix("acct")?.parse().ok()?;
        Some(Self::path_style(self.wire.address(), server::account(number % server::ACCOUNTS + 1)))
    }

    /// A client of an account with extended queries, which other cases may use too.
    pub fn extended(&self) -> Self {
        let number = self.account.name.strip_prefix("acct").and_then(|number| number.parse::<usize>().ok());
        let number = number.expect("an account of ours") % server::EXTENDED + 1;
        Self::path_style(self.wire.address(), server::extended(number))
    }

    /// A client of the development account of the same server; only for servers of ours.
    pub fn development(&self) -> Self {
        Self::path_style(self.wire.address(), server::development())
    }

    /// The same account on its secondary address, in path style.
    pub fn secondary(&self) -> Self {
        let root = format!("{}-secondary", self.root);
        Self::new(self.wire.address().into(), self.host.clone(), root, self.account.clone())
    }

    /// The same account under a host name that begins with this label and goes
    /// on with `.table.`; only for servers of ours.
    pub fn host_style(&self, label: &str) -> Self {
        let host = format!("{label}.table.suite.example");
        Self::new(self.wire.address().into(), host, String::new(), self.account.clone())
    }

    /// The connection beneath, for requests that no client would send.
    pub fn wire(&self) -> &Wire {
        &self.wire
    }

    /// The `Host` header.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The absolute address of a path.
    pub fn url(&self, path: &str) -> String {
        let scheme = if self.wire.tls().is_some() { "https" } else { "http" };
        format!("{scheme}://{}{}{path}", self.host, self.root)
    }

    /// The request target of a path.
    pub fn target(&self, path: &str) -> String {
        format!("{}{path}", self.root)
    }

    /// A request to a path below the account, given exactly as it is to go
    /// over the wire, query included.
    pub fn request(&self, verb: &str, path: &str) -> Request<'_> {
        let mut target = self.target(path);
        if let Some(token) = &self.token {
            target.push(if target.contains('?') { '&' } else { '?' });
            target.push_str(token);
        }
        let headers = [
            ("x-ms-version", "2019-02-02"),
            ("DataServiceVersion", "3.0"),
            ("Accept", "application/json;odata=minimalmetadata"),
            ("x-ms-client-request-id", &uuid::Uuid::new_v4().to_string()),
        ];
        let headers = headers.map(|(n, v)| (n.to_owned(), v.as_bytes().to_vec())).to_vec();
        Request {
            client: self,
            verb: verb.into(),
            target,
            headers,
            body: None,
            auth: if self.token.is_none() { Auth::SharedKey } else { Auth::None },
            date: self.token.is_none().then(|| http_date(0)),
            unchecked: false,
        }
    }

    /// A signed GET.
    #[track_caller]
    pub fn get(&self, path: &str) -> Answer {
        self.request("GET", path).send()
    }

    /// A fresh table with a name of its own.
    #[track_caller]
    pub fn table(&self) -> Table<'_> {
        let name = fresh_name();
        self.create_table(&name).expect(201);
        Table::new(self, name)
    }

    /// `POST /Tables`.
    #[track_caller]
    pub fn create_table(&self, name: &str) -> Answer {
        self.request("POST", "/Tables").json(&serde_json::json!({ "TableName": name })).send()
    }

    /// `DELETE /Tables('name')`.
    #[track_caller]
    pub fn delete_table(&self, name: &str) -> Answer {
        self.request("DELETE", &format!("/Tables('{name}')")).send()
    }
}

/// A table name that no other case uses.
pub fn fresh_name() -> String {
    format!("t{}", uuid::Uuid::new_v4().simple())
}

/// A request under construction.
#[derive(Clone)]
pub struct Request<'a> {
    client: &'a Client,
    verb: String,
    target: String,
    headers: Vec<(String, Vec<u8>)>,
    body: Option<Vec<u8>>,
    auth: Auth,
    date: Option<String>,
    unchecked: bool,
}

impl<'a> Request<'a> {
    /// Sets a header in place of what was there.
    pub fn header(self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.without(name).also(name, value)
    }

    /// Adds a header, even if it is there already.
    pub fn also(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name.into(), value.as_ref().to_vec()));
        self
    }

    /// Leaves a header out.
    pub fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(n, _)| !n.eq_ignore_ascii_case(name));
        self
    }

    /// Asks for a JSON metadata level.
    pub fn level(self, level: &str) -> Self {
        self.header("Accept", format!("application/json;odata={level}"))
    }

    /// Sets `x-ms-version`.
    pub fn version(self, version: &str) -> Self {
        self.header("x-ms-version", version)
    }

    /// Sets `If-Match`, if given.
    pub fn if_match(self, etag: Option<&str>) -> Self {
        match etag {
            Some(etag) => self.header("If-Match", etag),
            None => self,
        }
    }

    /// A JSON body.
    pub fn json(self, body: &Value) -> Self {
        self.raw_json(body.to_string())
    }

    /// A body of bytes that are called JSON.
    pub fn raw_json(self, body: impl Into<Vec<u8>>) -> Self {
        self.header("Content-Type", "application/json").body(body)
    }

    /// A body without more ado.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = Some(body.into());
        self
    }

    /// Another proof than SharedKey.
    pub fn auth(mut self, auth: Auth) -> Self {
        self.auth = auth;
        self
    }

    /// The value of `x-ms-date`, or none.
    pub fn date(mut self, date: Option<String>) -> Self {
        self.date = date;
        self
    }

    /// Does not demand of the answer what holds for answers of the service:
    /// for requests that may fail below it.
    pub fn unchecked(mut self) -> Self {
        self.unchecked = true;
        self
    }

    /// Sends it.
    #[track_caller]
    pub fn send(self) -> Answer {
        let bytes = self.bytes();
        let raw = self.client.wire.exchange(&self.verb, &bytes);
        let answer = Answer::new(raw, self.asked());
        if !self.unchecked {
            answer.check_invariants();
        }
        answer
    }

    /// The request as it goes over the wire, signed.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = format!("{} {} HTTP/1.1\r\nHost: {}\r\n", self.verb, self.target, self.client.host);
        if let Some(date) = &self.date {
            out.push_str(&format!("x-ms-date: {date}\r\n"));
        }
        if let Some(proof) = self.authorization() {
            out.push_str(&format!("Authorization: {proof}\r\n"));
        }
        let chunked = self.value("Transfer-Encoding").is_some();
        if let (Some(body), false, None) = (&self.body, chunked, self.value("Content-Length")) {
            out.push_str(&format!("Content-Length: {}\r\n", body.len()));
        } else if self.body.is_none() && self.verb != "GET" && self.value("Content-Length").is_none() {
            out.push_str("Content-Length: 0\r\n");
        }
        let mut out = out.into_bytes();
        for (name, value) in &self.headers {
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b": ");
            out.extend_from_slice(value);
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(self.body.as_deref().unwrap_or_default());
        out
    }

    fn value(&self, name: &str) -> Option<String> {
        let found = self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
        found.map(|(_, v)| String::from_utf8_lossy(v).into_owned())
    }

    fn authorization(&self) -> Option<String> {
        let [md5, kind, date] =
            ["Content-MD5", "Content-Type", "Date"].map(|n| self.value(n).unwrap_or_default());
        let account = &self.client.account;
        let signed = Signed {
            verb: &self.verb,
            content_md5: &md5,
            content_type: &kind,
            date: self.date.as_deref().unwrap_or(&date),
            account: &account.name,
            target: &self.target,
        };
        match &self.auth {
            Auth::SharedKey => Some(signed.shared_key(&account.keys[0])),
            Auth::SharedKeyLite => Some(signed.shared_key_lite(&account.keys[0])),
            Auth::SecondKey => Some(signed.shared_key(&account.keys[1])),
            Auth::Header(value) => Some(value.clone()),
            Auth::None => None,
        }
    }

    fn asked(&self) -> Asked {
        let accept = self.value("Accept");
        let wish = self.target.split_once("$format=").map(|(_, rest)| rest.to_owned());
        let wish = wish.or_else(|| accept.clone()).unwrap_or_default();
        let level = ["nometadata", "fullmetadata"].into_iter().find(|level| wish.contains(level));
        Asked {
            line: format!("{} {}", self.verb, self.target.chars().take(400).collect::<String>()),
            version: self.value("x-ms-version"),
            client_request_id: self.value("x-ms-client-request-id"),
            accept,
            level: level.unwrap_or("minimalmetadata"),
        }
    }
}
