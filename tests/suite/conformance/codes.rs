//! Every failure that the server knows, and a request that meets it (protocol
//! §14). A failure without a row does not compile.

use std::path::Path;

use rowhouse_protocol::error::Code;
use serde_json::json;

use crate::support::batch::post;
use crate::support::*;

cases! {
    every_failure_is_met,
}

/// How a failure is met.
enum Row {
    /// By a request of any client.
    By(Refusal, fn(&Client) -> Answer),
    /// By no request alone: what is told, and the file and name of its test.
    In(Refusal, &'static str, &'static str),
}

use Row::{By, In};

/// One row for each failure. The second function exists so that the compiler
/// misses rows.
macro_rules! rows {
    ($($code:ident => $row:expr),* $(,)?) => {
        fn rows() -> Vec<(Code, Row)> {
            vec![$((Code::$code, $row)),*]
        }
        const fn has_row(code: Code) {
            match code {
                $(Code::$code)|* => {}
            }
        }
    };
}

rows! {
    InvalidInput => By(INVALID_INPUT, |c| c.table().query("?$top=x")),
    BodyNotUnderstood => By(BAD_BODY, |c| insert(c, "{")),
    ContentTypeMissing => By(NO_CONTENT_TYPE, |c| c.request("POST", "/Tables").send()),
    FilterSyntax => By((400, "InvalidInput", "Syntax error at position 7 in 'aaa bbb ccc'."), |c| {
        c.table().filter("aaa bbb ccc")
    }),
    FilterOperandKinds => By(
        (
            400,
            "InvalidInput",
            "A binary operator with incompatible types was detected. Found operand types 'Edm.String' and 'Edm.Boolean' for operator kind 'And'.",
        ),
        |c| c.table().filter("PartitionKey and A eq 1"),
    ),
    QuerySyntax => By(QUERY_SYNTAX, |c| c.table().get("a/b", "r")),
    KeyCountMismatch => By(
        (
            400,
            "InvalidInput",
            "The number of keys specified in the URI does not match number of key properties for the resource.",
        ),
        |c| c.get("/Tables('a','b')"),
    ),
    InvalidEtag => By(
        (
            400,
            "InvalidInput",
            "The etag value '\"x\"' specified in one of the request headers is not valid. Please make sure only one etag value is specified and is valid.",
        ),
        |c| c.table().delete("p", "r", Some("\"x\"")),
    ),
    BothConditions => By(BOTH_CONDITIONS, |c| {
        let t = c.table();
        let request = t.on("PUT", "p", "r").json(&json!({}));
        request.header("If-Match", "*").header("If-None-Match", "*").send()
    }),
    IfNoneMatchNotAllowed => By(
        (400, "InvalidInput", "If-None-Match HTTP header cannot be specified for DELETE operations."),
        |c| c.table().on("DELETE", "p", "r").header("If-None-Match", "*").send(),
    ),
    ConditionWithoutEtag => By(
        (
            400,
            "InvalidInput",
            "If-Match or If-None-Match headers cannot be specified if the target type does not have etag properties defined.",
        ),
        |c| c.request("DELETE", &format!("/Tables('{}')", c.table().name)).header("If-Match", "*").send(),
    ),
    TooManyBatchOperations => By(
        (400, "InvalidInput", "99:The batch request operation exceeds the maximum 100 changes per change set."),
        |c| {
            let t = c.table();
            let one = |batch: Batch, i: i32| batch.insert(&t, &with_keys("p", &i.to_string(), json!({})));
            only_part(c, &(0..101).fold(Batch::new(), one))
        },
    ),
    InvalidHeaderValue => By(HEADER_VALUE, |c| c.request("GET", "/Tables").version("x").send()),
    CorsHeaderMissing => By(CORS_HEADER, |c| c.request("OPTIONS", "/Tables").unchecked().send()),
    InvalidXmlDocument => By(XML_DOCUMENT, |c| policies(c, "<x>")),
    InvalidXmlNodeValue => By(XML_VALUE, |c| {
        policies(
            c,
            "<SignedIdentifiers><SignedIdentifier><Id>a</Id><AccessPolicy><Permission>x</Permission>\
             </AccessPolicy></SignedIdentifier></SignedIdentifiers>",
        )
    }),
    InvalidQueryParameterValue => By(QUERY_VALUE, |c| c.get("/Tables?timeout=x")),
    HostInformationNotPresent => By(NO_HOST, |c| {
        let address = c.wire().address().to_owned();
        Client::new(address, String::new(), c.target(""), c.account.clone()).get("/Tables")
    }),
    InvalidAuthenticationInfo => By(BAD_AUTH_HEADER, |c| {
        c.request("GET", "/Tables").auth(Auth::Header("nonsense".into())).send()
    }),
    XMethodNotUsingPost => By(TUNNEL_NOT_POST, |c| tunnelled(c, "PUT", &["MERGE"])),
    XMethodIncorrectValue => By(TUNNEL_UNKNOWN, |c| tunnelled(c, "POST", &["FROB"])),
    XMethodIncorrectCount => By(TUNNEL_TWICE, |c| tunnelled(c, "POST", &["MERGE", "MERGE"])),
    DuplicatePropertiesSpecified => By(DUPLICATE_PROPERTY, |c| {
        insert(c, r#"{"PartitionKey":"p","RowKey":"r","A":1,"A":1}"#)
    }),
    DuplicateKeyPropertySpecified => By(DUPLICATE_KEY, |c| {
        insert(c, r#"{"PartitionKey":"p","RowKey":"r","RowKey":"r"}"#)
    }),
    EntityTooLarge => By(ENTITY_TOO_LARGE, |c| {
        let text = "x".repeat(32_000);
        let members = (0..20).map(|i| (format!("P{i}"), json!(text)));
        c.table().insert(&with_keys("p", "r", members.collect::<serde_json::Map<_, _>>().into()))
    }),
    PropertiesNeedValue => By(NEED_VALUE, |c| insert(c, r#"{"PartitionKey":"p"}"#)),
    PropertyNameInvalid => By(NAME_INVALID, |c| insert(c, r#"{"PartitionKey":"p","RowKey":"r","a b":1}"#)),
    PropertyNameTooLong => By(NAME_TOO_LONG, |c| {
        c.table().insert(&with_keys("p", "r", json!({ "n".repeat(256): 1 })))
    }),
    PropertyValueTooLarge => By(VALUE_TOO_LARGE, |c| {
        c.table().insert(&with_keys("p", "r", json!({ "A": "x".repeat(40_000) })))
    }),
    TooManyProperties => By(TOO_MANY_PROPERTIES, |c| {
        let members = (0..253).map(|i| (format!("P{i}"), json!(i)));
        c.table().insert(&with_keys("p", "r", members.collect::<serde_json::Map<_, _>>().into()))
    }),
    OutOfRangeInput => By(OUT_OF_RANGE, |c| c.table().get("a\tb", "r")),
    UrlKeyOutOfRange => By(OUT_OF_RANGE, |c| c.table().delete("a#b", "r", Some("*"))),
    NameLengthOutOfRange => By(TABLE_NAME_LENGTH, |c| c.create_table("ab")),
    InvalidResourceName => By(TABLE_NAME, |c| c.create_table("my-table")),
    CommandsInBatchActOnDifferentPartitions => By(
        (PARTITIONS_DIFFER.0, PARTITIONS_DIFFER.1, "1:All commands in a batch must operate on same entity group."),
        |c| {
            let t = c.table();
            let batch = Batch::new().insert(&t, &with_keys("p", "r", json!({})));
            only_part(c, &batch.insert(&t, &with_keys("q", "r", json!({}))))
        },
    ),
    InvalidDuplicateRow => By(
        (
            DUPLICATE_ROW.0,
            DUPLICATE_ROW.1,
            "1:The batch request contains multiple changes with same row key. An entity can appear only once in a batch request.",
        ),
        |c| {
            let t = c.table();
            let batch = Batch::new().insert(&t, &with_keys("p", "r", json!({})));
            only_part(c, &batch.delete(&t, "p", "r", "*"))
        },
    ),
    AccountIsDisabled => In(
        ACCOUNT_DISABLED,
        "commands/accounts.rs",
        "a_disabled_account_is_refused",
    ),
    NoCredentials => By(NO_CREDENTIALS, |c| {
        c.request("GET", "/Tables").version("2020-12-06").auth(Auth::None).send()
    }),
    TokenRefused => By(TOKEN_REFUSED, |c| {
        let stats = c.request("GET", "/?restype=service&comp=stats");
        stats.version("2020-12-06").auth(Auth::None).header("Accept", "application/xml").send()
    }),
    AuthenticationFailed => By(NOT_AUTHENTICATED, |c| {
        let forged = format!("SharedKey {}:AAAA", c.account.name);
        c.request("GET", "/Tables").auth(Auth::Header(forged)).send()
    }),
    AuthorizationFailure => By(OUTSIDE, |c| {
        with_sas(c, |sas| sas.range((Some("q"), None), (Some("q"), None)), |t| t.delete("p", "r", Some("*")))
    }),
    AuthorizationPermissionMismatch => By(PERMISSION, |c| {
        with_sas(c, |sas| sas.set("sp", "a"), |t| t.get("p", "r"))
    }),
    AuthorizationResourceTypeMismatch => By(RESOURCE_TYPE, |c| Sas::account("o", "rwdlacu").of(c).get("/Tables")),
    AuthorizationServiceMismatch => By(WRONG_SERVICE, |c| {
        Sas::account("sco", "rwdlacu").set("ss", "bq").of(c).get("/Tables")
    }),
    AuthorizationProtocolMismatch => By(WRONG_PROTOCOL, |c| {
        with_sas(c, |sas| sas.set("spr", "https"), |t| t.get("p", "r"))
    }),
    AuthorizationSourceIpMismatch => By(WRONG_ADDRESS, |c| {
        with_sas(c, |sas| sas.set("sip", "10.0.0.1"), |t| t.get("p", "r"))
    }),
    CorsPreflightFailure => By(NO_PREFLIGHT, |c| {
        let request = c.request("OPTIONS", "/Tables").header("Origin", "http://a");
        request.header("Access-Control-Request-Method", "GET").unchecked().send()
    }),
    WriteOnSecondary => By(WRITE_ON_SECONDARY, |c| c.secondary().create_table("abc")),
    ResourceNotFound => By(NOT_FOUND, |c| c.table().get("p", "r")),
    TableNotFound => By(NO_TABLE, |c| c.get(&format!("/{}()", fresh_name()))),
    MethodNotAllowed => By(METHOD_NOT_ALLOWED, |c| c.request("DELETE", "/Tables").send()),
    UnsupportedHttpVerb => By(UNKNOWN_VERB, |c| c.request("FROB", "/Tables").send()),
    TableAlreadyExists => By(TABLE_EXISTS, |c| c.create_table(&c.table().name)),
    TableBeingDeleted =>
        In(TABLE_BEING_DELETED, "faults.rs", "ordered_errors_are_those_of_the_service"),
    EntityAlreadyExists => By(ENTITY_EXISTS, |c| {
        let t = c.table();
        t.seed_one(json!({}));
        t.insert(&with_keys("p", "r", json!({})))
    }),
    UpdateConditionNotSatisfied => By(CONDITION_FAILED, |c| {
        let t = c.table();
        t.seed_one(json!({}));
        t.delete("p", "r", Some("W/\"datetime'2012-06-15T22%3A51%3A44.9662825Z'\""))
    }),
    ConditionNotMet => By(CONDITION_NOT_MET, |c| {
        let t = c.table();
        t.seed_one(json!({}));
        t.delete("p", "r", Some("W/\"x\""))
    }),
    RequestBodyTooLarge => By(BODY_TOO_LARGE, |c| insert(c, &" ".repeat(5 * 1024 * 1024))),
    AtomFormatNotSupported => By(ATOM_FORMAT, |c| {
        c.request("GET", "/Tables").header("Accept", "application/atom+xml").send()
    }),
    JsonFormatNotSupported => By(JSON_FORMAT, |c| c.request("GET", "/Tables").version("2012-02-12").send()),
    JsonVerboseFormatNotSupported => By(VERBOSE_JSON, |c| c.request("GET", "/Tables").level("verbose").send()),
    MediaTypeNotSupported => By(MEDIA_TYPE, |c| post(c, "").header("Content-Type", "text/plain").send()),
    InternalError =>
        In(INTERNAL, "failures.rs", "a_row_that_nobody_can_have_written_is_an_internal_error"),
    OperationTimedOut =>
        In(TIMED_OUT, "failures.rs", "a_write_that_takes_longer_than_the_client_allows_is_timed_out"),
    NotImplemented => By(NOT_IMPLEMENTED, |c| c.get("/Tables?$orderby=TableName")),
    RequestTimedOut =>
        In(BODY_TIMED_OUT, "promises/framing/slow.rs", "a_body_that_comes_too_slowly_is_cut_off"),
    ServerBusy => In(BUSY, "failures.rs", "a_database_that_is_away_makes_the_server_busy"),
}

fn insert(client: &Client, body: &str) -> Answer {
    client.request("POST", &client.table().set()).raw_json(body).send()
}

fn policies(client: &Client, body: &str) -> Answer {
    let request = client.request("PUT", &format!("{}?comp=acl", client.table().set()));
    request.header("Accept", "application/xml").body(body).send()
}

fn tunnelled(client: &Client, method: &str, verbs: &[&str]) -> Answer {
    let t = client.table();
    let request = t.on(method, "p", "r").json(&json!({}));
    verbs.iter().fold(request, |request, verb| request.also("X-HTTP-Method", verb)).send()
}

/// The one part of a batch that failed.
fn only_part(client: &Client, batch: &Batch) -> Answer {
    let answer = batch.send(client);
    assert_eq!(answer.parts.len(), 1, "{}", answer.outer);
    answer.parts[0].as_answer(&answer.outer)
}

/// What becomes of an attempt under a signature for all of a table, changed so.
fn with_sas(client: &Client, change: fn(Sas) -> Sas, attempt: fn(&Table) -> Answer) -> Answer {
    let t = client.table();
    t.seed_one(json!({}));
    attempt(&Table::new(&change(Sas::table(&t.name, "raud")).of(client), t.name.clone()))
}

/// Status, code and first line of an error in any form.
fn told(answer: &Answer) -> (u16, String, String) {
    let text = answer.text();
    let (code, message) = if text.starts_with('{') {
        let error = &answer.json()["odata.error"];
        let part = |value: &serde_json::Value| value.as_str().expect("the form of an error").to_owned();
        (part(&error["code"]), part(&error["message"]["value"]))
    } else {
        let between = |open: &str, close: &str| {
            let found = text.split_once(open).and_then(|(_, rest)| rest.split_once(close));
            found.unwrap_or_else(|| panic!("no {open}: {answer}")).0.to_owned()
        };
        let prefix = if text.contains("<m:error") { "m:" } else { "" };
        let message =
            between(&format!("<{prefix}message xml:lang=\"en-US\">"), &format!("</{prefix}message>"));
        (between(&format!("<{prefix}code>"), &format!("</{prefix}code>")), message)
    };
    (answer.status, code, message.lines().next().unwrap_or_default().to_owned())
}

fn every_failure_is_met(client: &Client) {
    for (code, row) in rows() {
        has_row(code);
        let facts = code.facts();
        let (status, name, message) = match row {
            By(refusal, request) => {
                let found = told(&request(client));
                assert_eq!((found.0, found.1.as_str(), found.2.as_str()), refusal, "{code:?}");
                refusal
            }
            In(refusal, file, test) => {
                let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite").join(file);
                let text = std::fs::read_to_string(path).expect("the file that is named");
                let body = text.split_once(&format!("fn {test}(")).expect("the test that is named").1;
                let known = [
                    ("INTERNAL", INTERNAL),
                    ("TIMED_OUT", TIMED_OUT),
                    ("BODY_TIMED_OUT", BODY_TIMED_OUT),
                    ("BUSY", BUSY),
                    ("ACCOUNT_DISABLED", ACCOUNT_DISABLED),
                    ("TABLE_BEING_DELETED", TABLE_BEING_DELETED),
                ];
                let constant = known.iter().find(|(_, known)| *known == refusal).expect("a known refusal").0;
                let body = body.split("\n}\n").next().unwrap_or_default();
                assert!(body.contains(&format!("{constant})")), "{test} does not demand {constant}");
                refusal
            }
        };
        assert_eq!((facts.status, facts.code), (status, name), "{code:?}");
        assert!(!message.is_empty());
    }
}
