//! Makes up requests, and judges their answers.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use memchr::memmem;

use crate::entity::{self, CHANGE_SET, Key, Layout};
use crate::http::{self, Answer};
use crate::options::Operation;
use crate::request::{Ask, JSON, NO_METADATA};
use crate::worker::Run;

/// Entities of one connection whose versions it knows.
const KNOWN: u64 = 50;
/// Entities of a page at most.
const PAGE: u64 = 1000;

/// How an answer has to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expect {
    Status(u16),
    /// The new version of the known entity at this place.
    Version(u16, usize),
    /// A change set, all of it done.
    Committed,
    /// So many entities.
    Entities(u64),
    /// At least one entity, on as many pages as it takes.
    Found,
}

pub enum Verdict {
    Done,
    /// Another page is to be asked for.
    GoOn,
}

pub struct Asking {
    run: Arc<Run>,
    layout: Layout,
    /// Of this connection.
    number: u64,
    /// What addresses in change sets start with.
    base: String,
    random: u64,
    /// Serial numbers and versions.
    known: Vec<(u64, String)>,
    doomed: Vec<Key>,
    found: u64,

    method: &'static str,
    path: String,
    query: String,
    accept: &'static str,
    content_type: &'static str,
    if_match: String,
    body: Vec<u8>,
    expect: Expect,
}

impl Asking {
    pub fn new(run: Arc<Run>, number: u64, base: String) -> Self {
        Self {
            layout: run.layout,
            run,
            number,
            base,
            random: seed(number),
            known: Vec::new(),
            doomed: Vec::new(),
            found: 0,
            method: "GET",
            path: String::new(),
            query: String::new(),
            accept: NO_METADATA,
            content_type: "",
            if_match: String::new(),
            body: Vec::new(),
            expect: Expect::Status(200),
        }
    }

    pub fn ask(&self) -> Ask<'_> {
        Ask {
            method: self.method,
            path: &self.path,
            query: &self.query,
            accept: self.accept,
            content_type: self.content_type,
            if_match: &self.if_match,
            body: &self.body,
        }
    }

    /// Makes up the next request; `false` if there is none.
    pub fn next(&mut self, operation: Operation) -> bool {
        match operation {
            Operation::CreateTable => {
                let name = format!("t{:016x}", self.random());
                self.create_table(&name);
            }
            Operation::Fill => return self.next_of_filling(),
            Operation::Read => {
                let serial = self.random() % self.layout.entities();
                self.start("GET", self.layout.key(serial), Expect::Status(200));
            }
            Operation::Insert => {
                let key = Key {
                    partition: self.layout.partition(self.random()),
                    row: entity::new_row(self.random()),
                };
                let serial = self.random();
                self.start("POST", key, Expect::Status(204));
                self.path = format!("/{}", self.run.options.table);
                self.send(key, serial);
            }
            Operation::ReplaceMatch => self.replace_match(),
            Operation::ReplaceAny => self.change("PUT", "*"),
            Operation::InsertOrReplace => self.change("PUT", ""),
            Operation::Merge => self.merge("*"),
            Operation::InsertOrMerge => self.merge(""),
            Operation::Delete => {
                let Some(key) = self.doomed.pop() else { return false };
                self.start("DELETE", key, Expect::Status(204));
                self.if_match.push('*');
            }
            Operation::Transaction => {
                let partition = entity::new_row(self.random());
                let keys = (0..CHANGE_SET).map(|row| Key { partition, row: 1_000_000 + row });
                let first = self.random() >> 1;
                self.change_set("POST", keys.zip(first..));
            }
            Operation::TransactionReplace => return self.upsert("PUT"),
            Operation::TransactionMerge => return self.upsert("MERGE"),
            Operation::PageNone => self.page(NO_METADATA),
            Operation::PageMinimal => self.page("application/json;odata=minimalmetadata"),
            Operation::PageFull => self.page("application/json;odata=fullmetadata"),
            Operation::Filter => {
                let age = self.random() % self.layout.entities().min(10_000);
                self.query_table(&format!("Age%20eq%20{age}"), Expect::Found);
                self.found = 0;
            }
            Operation::Query => {
                self.reset("GET", Expect::Status(200));
                let options = &self.run.options;
                let _ = write!(self.path, "/{}()", options.table);
                self.query.push_str(&options.query);
            }
        }
        true
    }

    pub fn create_table(&mut self, name: &str) {
        self.reset("POST", Expect::Status(204));
        self.path.push_str("/Tables");
        self.content_type = JSON;
        self.body.extend_from_slice(format!("{{\"TableName\":\"{name}\"}}").as_bytes());
    }

    /// The next change set of the filling, if any is left.
    pub fn next_of_filling(&mut self) -> bool {
        let number = self.run.change_sets.fetch_add(1, Ordering::Relaxed);
        let Some(serials) = self.layout.change_set(number) else { return false };
        let layout = self.layout;
        self.change_set("POST", serials.map(|serial| (layout.key(serial), serial)));
        true
    }

    /// Changes the entities of a change set of the filling.
    fn upsert(&mut self, method: &str) -> bool {
        let layout = self.layout;
        let count = (layout.entities() / CHANGE_SET).max(1);
        let Some(serials) = layout.change_set(self.random() % count) else { return false };
        let shift = self.random() >> 1;
        self.change_set(method, serials.map(|serial| (layout.key(serial), serial ^ shift)));
        true
    }

    /// Asks for the version of the next entity that is to be known.
    pub fn next_to_know(&mut self) -> bool {
        let at = self.known.len();
        let serial = self.own(at as u64);
        if at as u64 == KNOWN || self.known.iter().any(|(known, _)| *known == serial) {
            return false;
        }
        self.known.push((serial, String::new()));
        self.start("GET", self.layout.key(serial), Expect::Version(200, at));
        self.query.push_str("$select=RowKey");
        true
    }

    /// A change set of entities that are there to be deleted.
    pub fn insert_doomed(&mut self) {
        let (partition, first) = (900_000 + self.number, entity::new_row(self.random()));
        let keys = (first..first + CHANGE_SET).map(|row| Key { partition, row });
        self.doomed.extend(keys.clone());
        self.change_set("POST", keys.zip(0..));
    }

    /// An entity that no other connection changes.
    fn own(&self, random: u64) -> u64 {
        let connections = self.run.options.connections as u64;
        let each = (self.layout.entities() / connections).max(1);
        (random % each * connections + self.number) % self.layout.entities()
    }

    fn replace_match(&mut self) {
        let at = (self.random() % self.known.len().max(1) as u64) as usize;
        let (serial, etag) = std::mem::take(&mut self.known[at]);
        let key = self.layout.key(serial);
        self.start("PUT", key, Expect::Version(204, at));
        self.if_match.push_str(&etag);
        self.known[at] = (serial, etag);
        self.send(key, serial);
    }

    fn change(&mut self, method: &'static str, if_match: &str) {
        let random = self.random();
        let serial = self.own(random);
        let key = self.layout.key(serial);
        self.start(method, key, Expect::Status(204));
        self.if_match.push_str(if_match);
        self.send(key, serial);
    }

    fn merge(&mut self, if_match: &str) {
        let random = self.random();
        let key = self.layout.key(self.own(random));
        self.start("MERGE", key, Expect::Status(204));
        self.if_match.push_str(if_match);
        self.content_type = JSON;
        entity::write_change(&mut self.body, random);
    }

    fn page(&mut self, accept: &'static str) {
        let partition = self.layout.partition(self.random());
        self.query_table(
            &format!("PartitionKey%20eq%20'{partition}'"),
            Expect::Entities(self.layout.each.min(PAGE)),
        );
        self.accept = accept;
    }

    fn query_table(&mut self, filter: &str, expect: Expect) {
        self.reset("GET", expect);
        let _ = write!(self.path, "/{}()", self.run.options.table);
        let _ = write!(self.query, "$filter={filter}");
    }

    fn change_set(&mut self, method: &str, entities: impl Iterator<Item = (Key, u64)>) {
        self.reset("POST", Expect::Committed);
        self.path.push_str("/$batch");
        self.content_type = "multipart/mixed; boundary=batch_load";
        self.body.extend_from_slice(
            b"--batch_load\r\nContent-Type: multipart/mixed; boundary=changeset_load\r\n\r\n",
        );
        // Every entity is as long as any other.
        let (before, after) = (
            format!(
                "--changeset_load\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n\
                 {method} {}/{}",
                self.base, self.run.options.table,
            ),
            format!(
                " HTTP/1.1\r\nContent-Type: application/json\r\nAccept: {NO_METADATA}\r\n\
                 Prefer: return-no-content\r\nDataServiceVersion: 3.0\r\nContent-Length: {}\r\n\r\n",
                entity::SIZE,
            ),
        );
        for (key, serial) in entities {
            self.body.extend_from_slice(before.as_bytes());
            if method != "POST" {
                self.body.extend_from_slice(key.to_string().as_bytes());
            }
            self.body.extend_from_slice(after.as_bytes());
            entity::write(&mut self.body, key, serial);
            self.body.extend_from_slice(b"\r\n");
        }
        self.body.extend_from_slice(b"--changeset_load--\r\n--batch_load--\r\n");
    }

    fn start(&mut self, method: &'static str, key: Key, expect: Expect) {
        self.reset(method, expect);
        let _ = write!(self.path, "/{}{key}", self.run.options.table);
    }

    fn send(&mut self, key: Key, serial: u64) {
        self.content_type = JSON;
        entity::write(&mut self.body, key, serial);
    }

    fn reset(&mut self, method: &'static str, expect: Expect) {
        (self.method, self.expect) = (method, expect);
        (self.accept, self.content_type) = (NO_METADATA, "");
        for text in [&mut self.path, &mut self.query, &mut self.if_match] {
            text.clear();
        }
        self.body.clear();
    }

    /// # Errors
    /// What was wrong with an answer.
    pub fn judge(&mut self, answer: &Answer<'_>) -> Result<Verdict, String> {
        let status = match self.expect {
            Expect::Status(status) | Expect::Version(status, _) => status,
            Expect::Committed => 202,
            Expect::Entities(_) | Expect::Found => 200,
        };
        if answer.status != status {
            return Err(describe(answer.status, answer.body));
        }
        if self.run.options.only_status {
            return Ok(Verdict::Done);
        }
        match self.expect {
            Expect::Status(_) => {}
            Expect::Version(_, at) => {
                let etag = answer.header("etag").ok_or("no ETag")?;
                etag.clone_into(&mut self.known[at].1);
            }
            Expect::Committed => committed(answer.body)?,
            Expect::Entities(wanted) => {
                let got = entities(answer.body);
                if got != wanted {
                    return Err(format!("{got} entities instead of {wanted}"));
                }
            }
            Expect::Found => return self.found(answer),
        }
        Ok(Verdict::Done)
    }

    fn found(&mut self, answer: &Answer<'_>) -> Result<Verdict, String> {
        self.found += entities(answer.body);
        if let Some(partition) = answer.header("x-ms-continuation-nextpartitionkey") {
            let row = answer.header("x-ms-continuation-nextrowkey").unwrap_or_default();
            self.query.truncate(self.query.find("&Next").unwrap_or(self.query.len()));
            let _ = write!(self.query, "&NextPartitionKey={partition}&NextRowKey={row}");
            return Ok(Verdict::GoOn);
        }
        if self.found == 0 { Err("nothing found".into()) } else { Ok(Verdict::Done) }
    }

    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1
    }
}

/// Not zero, and different for every process and connection.
fn seed(number: u64) -> u64 {
    let now = std::time::UNIX_EPOCH.elapsed().map_or(1, |since| since.subsec_nanos());
    (u64::from(now) << 20 ^ u64::from(std::process::id()) << 40 ^ (number + 1)) | 1 << 63
}

fn entities(body: &[u8]) -> u64 {
    memmem::find_iter(body, b"\"PartitionKey\":\"").count() as u64
}

/// Whether every part of a change set was done.
fn committed(body: &[u8]) -> Result<(), String> {
    match memmem::find_iter(body, b"HTTP/1.1 ").find(|at| body.get(at + 9) != Some(&b'2')) {
        None => Ok(()),
        Some(at) => Err(describe(http::status(&body[at..]).unwrap_or(0), &body[at..])),
    }
}

/// Status and, from its body, the code of a refusal.
fn describe(status: u16, body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let code =
        text.split_once("\"code\":\"").and_then(|(_, rest)| rest.split_once('"')).map(|(code, _)| code);
    format!("{status} {}", code.unwrap_or_default()).trim_end().to_owned()
}
