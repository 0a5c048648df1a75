//! Making the state that a recorded exchange speaks of.

use serde_json::{Value, json};

use super::recorded::{PROPERTIES, Recorded, address, token_text};
use super::recording::*;
use crate::support::*;

impl Recorded {
    /// Makes the state that an answer speaks of.
    pub(super) fn prepare(&mut self, exchange: &Exchange) {
        let path = exchange.path();
        if path.contains("comp=acl") {
            self.prepare_policies(exchange);
        } else if path.contains("restype=service") {
            self.prepare_service(exchange);
        } else if path.starts_with("/Tables") {
            self.prepare_tables(exchange);
        } else if path.starts_with("/$batch") {
            self.prepare_batch(exchange);
        } else {
            self.prepare_entity(exchange);
        }
        if path.contains("&si=") {
            self.prepare_policy(exchange);
        }
        self.prepare_rules(exchange);
        self.learn_etags(exchange);
    }

    /// Rules of CORS, on which answers depend.
    fn prepare_rules(&mut self, exchange: &Exchange) {
        let depends = exchange.response.headers.contains_key("vary");
        if depends && !self.has_rules && !exchange.path().contains("restype=service") {
            self.put_xml("/?restype=service&comp=properties", cors_rule("http://a")).expect(202);
            self.has_rules = true;
        }
    }

    /// The stored policy that a recorded signature relies on.
    fn prepare_policy(&self, exchange: &Exchange) {
        let (table, _) = address(exchange.path());
        self.table(&table, true);
        let end = sas::time(3600);
        let body = format!(
            "<SignedIdentifiers><SignedIdentifier><Id>testid</Id><AccessPolicy><Expiry>{end}</Expiry>\
             <Permission>r</Permission></AccessPolicy></SignedIdentifier></SignedIdentifiers>"
        );
        self.put_xml(&format!("/{table}?comp=acl"), body).expect(204);
    }

    fn put_xml(&self, path: &str, body: String) -> Answer {
        self.session.client.request("PUT", path).header("Accept", "application/xml").body(body).send()
    }

    fn prepare_policies(&mut self, exchange: &Exchange) {
        let (table, _) = address(exchange.path());
        self.table(&table, exchange.response.status != 404);
        if exchange.request.method == "GET" && exchange.response.status == 200 && !self.complete {
            let shown = exchange.answer_text().trim_start_matches('\u{feff}').to_owned();
            self.put_xml(&format!("/{table}?comp=acl"), shown).expect(204);
        }
    }

    /// Sets the properties that an answer shows but those that a replayed
    /// exchange has set.
    fn prepare_service(&mut self, exchange: &Exchange) {
        if exchange.request.method == "PUT" {
            self.set = exchange.request.body.clone().unwrap_or_default();
            return;
        }
        if !exchange.path().contains("comp=properties") {
            return;
        }
        let mut shown = exchange.answer_text().trim_start_matches('\u{feff}').to_owned();
        for name in PROPERTIES.iter().filter(|name| self.set.contains(&format!("<{name}>"))) {
            let (open, close) = (format!("<{name}>"), format!("</{name}>"));
            if let (Some(from), Some(to)) = (shown.find(&open), shown.find(&close)) {
                shown.replace_range(from..to + close.len(), "");
            }
        }
        self.put_xml("/?restype=service&comp=properties", shown).expect(202);
    }

    fn prepare_tables(&mut self, exchange: &Exchange) {
        let status = exchange.response.status;
        let body = exchange.request.body.as_deref().unwrap_or_default();
        match exchange.request.method.as_str() {
            "POST" => {
                let body: Value = serde_json::from_str(body).expect("a recorded body");
                let name = body["TableName"].as_str().expect("a recorded name").to_owned();
                self.table(&name, status == 409);
                self.made.insert(name);
            }
            "DELETE" => {
                let (_, name) = exchange.path().split_once("('").expect("a recorded address");
                self.table(name.trim_end_matches("')"), status == 204);
            }
            _ => self.list_of_tables(exchange),
        }
    }

    /// Makes the account hold what a recorded list shows, and nothing else.
    fn list_of_tables(&mut self, exchange: &Exchange) {
        for table in rows(self.session.client.get("/Tables").expect_json()) {
            self.session.client.delete_table(table["TableName"].as_str().expect("a name")).expect(204);
        }
        let listed = rows(serde_json::from_str(exchange.answer_text()).expect("a recorded list"));
        for table in &listed {
            self.session.client.create_table(table["TableName"].as_str().expect("a name")).expect(201);
        }
        if let Some(token) = exchange.response.headers.get("x-ms-continuation-nexttablename") {
            self.session.client.create_table(&token_text(token)).expect(201);
        }
    }

    fn prepare_entity(&mut self, exchange: &Exchange) {
        let (table, keys) = address(exchange.path());
        if exchange.speaks_of("AuthenticationFailed") {
            return;
        }
        self.table(&table, !exchange.speaks_of("TableNotFound"));
        let status = exchange.response.status;
        match (exchange.request.method.as_str(), keys) {
            ("POST", _) => {
                let body: Value = serde_json::from_str(exchange.request.body.as_deref().unwrap_or_default())
                    .unwrap_or_default();
                if let (Some(p), Some(r)) = (body["PartitionKey"].as_str(), body["RowKey"].as_str()) {
                    self.entity(&table, &(p.into(), r.into()), status == 409);
                    self.made.insert(format!("{table} {p} {r}"));
                }
            }
            ("GET", Some(keys)) => self.shown_entity(exchange, &table, &keys),
            ("GET", None) => self.shown_feed(exchange, &table),
            (_, Some(keys)) => {
                let conditional = exchange.request.headers.contains_key("if-match");
                if status == 404 || conditional {
                    self.entity(&table, &keys, status != 404);
                }
                self.made.insert(format!("{table} {} {}", keys.0, keys.1));
            }
            (method, None) => panic!("{method} {} is not foreseen", exchange.path()),
        }
    }

    fn shown_entity(&mut self, exchange: &Exchange, table: &str, keys: &(String, String)) {
        if exchange.response.status == 404 {
            return self.entity(table, keys, false);
        }
        if self.complete && self.made.contains(&format!("{table} {} {}", keys.0, keys.1)) {
            return;
        }
        let shown: Value = serde_json::from_str(exchange.answer_text()).expect("a recorded entity");
        Table::new(&self.session.client, table).replace(&keys.0, &keys.1, &shown, None).expect(204);
    }

    /// Makes the table hold what a recorded feed shows, unless the replay has
    /// made it so.
    fn shown_feed(&mut self, exchange: &Exchange, table: &str) {
        if self.complete || exchange.response.status != 200 {
            return;
        }
        self.table(table, false);
        self.table(table, true);
        let there = Table::new(&self.session.client, table);
        let items = rows(serde_json::from_str(exchange.answer_text()).expect("a recorded feed"));
        for (i, item) in items.iter().enumerate() {
            let partition = item["PartitionKey"].as_str().unwrap_or("p").to_owned();
            let row = item["RowKey"].as_str().map_or_else(|| format!("{i:04}"), str::to_owned);
            there.replace(&partition, &row, item, None).expect(204);
        }
        let token = |name: &str| exchange.response.headers.get(name).map(|t| token_text(t));
        if let Some(partition) = token("x-ms-continuation-nextpartitionkey") {
            let row = token("x-ms-continuation-nextrowkey").unwrap_or_default();
            there.replace(&partition, &row, &json!({}), None).expect(204);
        }
    }

    fn prepare_batch(&mut self, exchange: &Exchange) {
        if exchange.speaks_of("AuthenticationFailed") {
            return;
        }
        let recorded = exchange.request.body.as_deref().unwrap_or_default();
        for operation in inner_operations(recorded) {
            let (table, keys) = address(&operation.path);
            self.table(&table, !exchange.speaks_of("TableNotFound"));
            if exchange.speaks_of("TableNotFound") {
                return;
            }
            match keys {
                Some(keys) if operation.if_match.is_some() => {
                    self.entity(&table, &keys, !exchange.speaks_of("ResourceNotFound"));
                }
                Some(_) => {}
                None => {
                    let body = operation.body.unwrap_or_default();
                    let key = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
                    self.entity(
                        &table,
                        &(key("PartitionKey"), key("RowKey")),
                        exchange.speaks_of("EntityAlreadyExists"),
                    );
                    self.made.insert(format!("{table} {} {}", key("PartitionKey"), key("RowKey")));
                }
            }
        }
    }

    /// What succeeded names the ETags of its time; ours differ.
    fn learn_etags(&mut self, exchange: &Exchange) {
        let mut named = Vec::new();
        if exchange.response.status < 300 {
            named.push((exchange.path().to_owned(), exchange.request.headers.get("if-match").cloned()));
        }
        if exchange.path().starts_with("/$batch") && !exchange.answer_text().contains("odata.error") {
            let operations = inner_operations(exchange.request.body.as_deref().unwrap_or_default());
            named.extend(operations.into_iter().map(|operation| (operation.path, operation.if_match)));
        }
        for (path, etag) in named {
            if let (Some(theirs), (table, Some((partition, row)))) =
                (etag.filter(|etag| etag != "*"), address(&path))
            {
                let found = Table::new(&self.session.client, &table).get(&partition, &row).expect(200);
                self.session.learn(Some(&theirs), Some(found.need("ETag")));
            }
        }
    }

    /// Makes a table be there, or not.
    fn table(&self, name: &str, there: bool) {
        let status = self.session.client.get(&format!("/Tables('{name}')")).status;
        match (status, there) {
            (404, true) => drop(self.session.client.create_table(name).expect(201)),
            (200, false) => drop(self.session.client.delete_table(name).expect(204)),
            _ => {}
        }
    }

    /// Makes an entity be there, or not.
    fn entity(&self, table: &str, keys: &(String, String), there: bool) {
        let table = Table::new(&self.session.client, table);
        let status = table.get(&keys.0, &keys.1).status;
        match (status, there) {
            (404, true) => drop(table.replace(&keys.0, &keys.1, &json!({}), None).expect(204)),
            (200, false) => drop(table.delete(&keys.0, &keys.1, Some("*")).expect(204)),
            _ => {}
        }
    }
}
