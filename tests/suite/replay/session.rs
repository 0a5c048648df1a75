//! Whole recorded sessions, each replayed into an account of its own: requests as they
//! were recorded, with the addresses, ETags and signatures of now.

use std::collections::HashMap;

use serde_json::Value;

use super::recording::{Compared, Exchange, RECORDED_HOST, RECORDED_SECONDARY, parts};
use crate::support::{Answer, Auth, Client, Sas, sas};

/// A session under way: one client of one program.
pub struct Session {
    pub client: Client,
    /// The ETags of the recording, and those that stand for them here.
    etags: HashMap<String, String>,
}

impl Session {
    /// Nothing has been replayed yet.
    pub fn new(client: Client) -> Self {
        Self { client, etags: HashMap::new() }
    }

    /// Sends a request as it was recorded. `auth`, if not as the client signs.
    pub fn send(&self, exchange: &Exchange, auth: Option<Auth>) -> Answer {
        let recorded = &exchange.request;
        let host = if exchange.on_secondary() { self.client.secondary() } else { self.client.same() };
        let (client, path) = signed_afresh(host, exchange.path());
        let mut request = client.request(&recorded.method, &path);
        for name in ["DataServiceVersion", "Accept"] {
            request = request.without(name);
        }
        for (name, value) in &recorded.headers {
            request = request.header(name, self.of_now(value));
        }
        if let Some(body) = &recorded.body {
            request = request.body(self.with_current_etags(&self.of_now(&far_future(body))));
        }
        match auth {
            Some(auth) => request.auth(auth).send(),
            None => request.send(),
        }
    }

    /// How an answer differs from the recorded one, with the account and the addresses of the recording.
    pub fn differences(&self, compared: &Compared, exchange: &Exchange, answer: &Answer) -> Vec<String> {
        let (own, base) = (format!("{}.", self.client.account.name), self.client.url(""));
        let text =
            ["\"odata.type\":\"", "'", "term=\""].iter().fold(answer.text().to_owned(), |text, before| {
                text.replace(&format!("{before}{own}"), &format!("{before}acct."))
            });
        compared.differences(exchange, answer, &text.replace(&base, RECORDED_HOST), &base)
    }

    /// Requests that were rebuilt have ETags of their own making in the parts of a batch:
    /// each stands for the entity's own.
    fn with_current_etags(&self, body: &str) -> String {
        let mut entity = "";
        let lines = body.split_inclusive('\n').map(|line| {
            if let Some((request, _)) = line.split_once(" HTTP/1.1") {
                entity = request.split_once(' ').map_or("", |(_, url)| url);
            }
            match line.strip_prefix("if-match: W/") {
                None => line.to_owned(),
                Some(_) => {
                    let path = entity.strip_prefix(&self.client.url("")).unwrap_or(entity);
                    let etag = self.client.get(path).expect(200).need("ETag").to_owned();
                    format!("if-match: {etag}\n")
                }
            }
        });
        lines.collect()
    }

    /// A text of the recording with the addresses and ETags of now.
    fn of_now(&self, text: &str) -> String {
        let text = text.replace(RECORDED_SECONDARY, &self.client.secondary().url(""));
        let text = text.replace(RECORDED_HOST, &self.client.url(""));
        self.etags.iter().fold(text, |text, (theirs, ours)| text.replace(theirs.as_str(), ours))
    }

    /// Takes note of the ETag that stands for a recorded one.
    pub fn learn(&mut self, theirs: Option<&str>, ours: Option<&str>) {
        if let (Some(theirs), Some(ours)) = (theirs, ours) {
            self.etags.insert(theirs.to_owned(), ours.to_owned());
        }
    }

    /// Takes note of all ETags of an answer, and of its entities or parts.
    pub fn learn_from(&mut self, exchange: &Exchange, ours: &Answer) {
        let theirs = exchange.response.headers.get("etag");
        self.learn(theirs.map(String::as_str), ours.header("ETag"));
        self.learn_from_bodies(exchange.answer_text(), ours.text());
    }

    fn learn_from_bodies(&mut self, theirs: &str, ours: &str) {
        if let (Ok(theirs), Ok(ours)) = (serde_json::from_str(theirs), serde_json::from_str(ours)) {
            self.learn_from_entities(&theirs, &ours);
        }
        let (Some((_, theirs)), Some((_, ours))) = (parts(theirs), parts(ours)) else { return };
        for (theirs, ours) in theirs.iter().zip(&ours) {
            let etag = |headers: &[(String, String)]| {
                headers.iter().find(|(name, _)| name == "ETag").map(|(_, value)| value.clone())
            };
            self.learn(etag(&theirs.headers).as_deref(), etag(&ours.headers).as_deref());
            self.learn_from_bodies(&theirs.body, &ours.body);
        }
    }

    fn learn_from_entities(&mut self, theirs: &Value, ours: &Value) {
        let etag = |entity: &Value| entity["odata.etag"].as_str().map(str::to_owned);
        self.learn(etag(theirs).as_deref(), etag(ours).as_deref());
        if let (Value::Array(theirs), Value::Array(ours)) = (&theirs["value"], &ours["value"]) {
            theirs.iter().zip(ours).for_each(|(theirs, ours)| self.learn_from_entities(theirs, ours));
        }
    }
}

/// A client, and the path for it, that have a signature of now where one was recorded. Of
/// some recordings it was taken out: then the account's key signs.
fn signed_afresh(client: Client, path: &str) -> (Client, String) {
    let Some((path, query)) = path.split_once('?').filter(|(_, query)| query.contains("sig=")) else {
        return (client, path.to_owned());
    };
    let is_signed = |pair: &&str| SIGNED.iter().any(|name| pair.split('=').next() == Some(name));
    let (signed, rest): (Vec<&str>, Vec<&str>) = query.split('&').partition(is_signed);
    let path = format!("{path}?{}", rest.join("&"));
    if !signed.iter().any(|pair| pair.starts_with("sv=")) {
        return (client, path);
    }
    let (start, end) = (sas::time(-3600), sas::time(3600));
    let fields = signed.into_iter().filter_map(|pair| pair.split_once('='));
    let fields = fields.filter(|(name, _)| *name != "sig").map(|(name, value)| match value {
        "start" => (name, start.clone()),
        "end" => (name, end.clone()),
        _ => (name, value.replace("%2C", ",").replace("%2c", ",")),
    });
    let fields: Vec<(&str, String)> = fields.collect();
    let signature = Sas::from_fields(fields.iter().map(|(name, value)| (*name, value.as_str())));
    (signature.of(&client), path)
}

/// Parameters that belong to a signature.
const SIGNED: [&str; 16] =
    ["sv", "st", "se", "sp", "spr", "sip", "si", "sig", "tn", "spk", "srk", "epk", "erk", "ss", "srt", "ses"];

/// Policies of a recording have expired by now.
fn far_future(text: &str) -> String {
    text.replace("<Expiry>2026-", "<Expiry>2999-")
}
