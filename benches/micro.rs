//! What single steps of a request cost.
//!
//! ```text
//! cargo bench --bench micro
//! cargo bench --bench micro -- json
//! ```

use std::fmt::Write as _;
use std::hint::black_box;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rowhouse_protocol::auth::accounts::DEVELOPMENT_ACCOUNT as ACCOUNT;
use rowhouse_protocol::auth::{self, AccountSet};
use rowhouse_protocol::codec::atom::{read as atom_read, write as atom_write};
use rowhouse_protocol::codec::feed::{Feed, FeedForm};
use rowhouse_protocol::codec::json::{read as json_read, write as json_write};
use rowhouse_protocol::codec::uri::escape;
use rowhouse_protocol::codec::{multipart, stored};
use rowhouse_protocol::model::entity::StoredProperties;
use rowhouse_protocol::model::{Key, Stored, Ticks};
use rowhouse_protocol::odata::{self, Grammar};
use rowhouse_protocol::plan::filter::{Subject, predicate};
use rowhouse_protocol::plan::operation::Context;
use rowhouse_protocol::plan::predicate::Prepared;
use rowhouse_protocol::plan::{self, RequestKind};
use rowhouse_protocol::request::options::{NO_OPTIONS, Options};
use rowhouse_protocol::request::{Head, Target, target};

const FILTER: &str = "PartitionKey eq 'Jones' and RowKey ge 'A' and RowKey lt 'B' and (Age gt 30 or not (Active eq true)) \
                      and Seen ge datetime'2026-01-01T00:00:00Z' and Total ne 12L";
const GRAMMAR: Grammar = Grammar { max_comparisons: 1000, extended: false };

/// Ten properties, 1 KiB.
fn entity(row: usize) -> String {
    let text = |n: usize| format!("{:0>150}", row * 7 + n);
    format!(
        "{{\"PartitionKey\":\"p\",\"RowKey\":\"r{row:04}\",\"Serial\":{row},\"Age\":{},\"Active\":true,\"Score\":1.5,\
         \"Total@odata.type\":\"Edm.Int64\",\"Total\":\"{row}\",\
         \"Seen@odata.type\":\"Edm.DateTime\",\"Seen\":\"2026-01-01T00:00:00Z\",\
         \"T1\":\"{}\",\"T2\":\"{}\",\"T3\":\"{}\",\"T4\":\"{:0>300}\"}}",
        row % 100,
        text(1),
        text(2),
        text(3),
        text(4),
    )
}

fn now() -> Ticks {
    Ticks::parse("2026-01-01T00:00:00.1234567Z").expect("a date")
}

fn stored_entity(row: usize) -> Stored {
    let text = entity(row);
    let body = json_read::entity(text.as_bytes()).expect("an entity");
    let key = Key::new("p", format!("r{row:04}"));
    Stored { key, modified: now(), properties: stored::encode(&body.properties) }
}

/// The same as PostgreSQL prints it: short names first, and spaces.
fn stored_in_jsonb(row: usize) -> Stored {
    let entity = stored_entity(row);
    let members: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(entity.properties.as_str()).expect("an object");
    let mut members: Vec<_> = members.into_iter().collect();
    members.sort_by(|(a, _), (b, _)| (a.len(), a).cmp(&(b.len(), b)));
    let members: Vec<_> = members.iter().map(|(name, value)| format!("\"{name}\": {value}")).collect();
    let properties = StoredProperties::from_jsonb(format!("{{{}}}", members.join(", ")));
    Stored { properties, ..entity }
}

fn context(metadata: json_write::Metadata) -> json_write::MetadataContext<'static> {
    json_write::MetadataContext {
        metadata,
        base: "http://127.0.0.1:10002/devstoreaccount1",
        account: ACCOUNT,
        table: "People",
        select: None,
    }
}

fn filters(c: &mut Criterion) {
    let mut group = c.benchmark_group("filter");
    group.bench_function("parse", |b| b.iter(|| odata::parse(black_box(FILTER), GRAMMAR)));
    let expr = odata::parse(FILTER, GRAMMAR).expect("a filter");
    group.bench_function("understand", |b| b.iter(|| predicate(black_box(&expr), Subject::Entities)));
    let condition = predicate(&odata::parse("Age eq 37", GRAMMAR).expect("a filter"), Subject::Entities)
        .expect("a predicate");
    let (prepared, entity) = (Prepared::new(&condition), stored_entity(1));
    group.bench_function("match", |b| b.iter(|| prepared.matches(black_box(&entity).into())));
    group.finish();
}

fn json(c: &mut Criterion) {
    use json_write::Metadata;
    let (text, one) = (entity(1), stored_entity(1));
    let page: Vec<Stored> = (0..1000).map(stored_entity).collect();
    let page_in_jsonb: Vec<Stored> = (0..1000).map(stored_in_jsonb).collect();
    let mut group = c.benchmark_group("json");
    group.bench_function("read", |b| b.iter(|| json_read::entity(black_box(text.as_bytes()))));
    let properties = json_read::entity(text.as_bytes()).expect("an entity").properties;
    group.bench_function("store", |b| b.iter(|| stored::encode(black_box(&properties))));
    for (name, level) in [("none", Metadata::None), ("minimal", Metadata::Minimal), ("full", Metadata::Full)]
    {
        let context = context(level);
        group.throughput(Throughput::Elements(1));
        group.bench_function(format!("write, {name}"), |b| {
            b.iter(|| json_write::entity_document(&context, black_box(&one)));
        });
        group.throughput(Throughput::Elements(page.len() as u64));
        for (page, of) in [(&page, ""), (&page_in_jsonb, " in jsonb")] {
            group.bench_function(format!("write a page{of}, {name}"), |b| {
                b.iter(|| {
                    let mut feed = Feed::open(FeedForm::Json(context), page.len());
                    black_box(page).iter().for_each(|entity| feed.push(entity.into()).expect("an entity"));
                    feed.close()
                });
            });
        }
    }
    group.finish();
}

fn atom(c: &mut Criterion) {
    let one = stored_entity(1);
    let context = context(json_write::Metadata::Full);
    let atom = atom_write::Atom { context, style: atom_write::Style::Modern, now: now() };
    let text = atom.entity_document(&one).expect("an entry");
    let mut group = c.benchmark_group("atom");
    group.bench_function("read", |b| b.iter(|| atom_read::entity(black_box(text.as_bytes()))));
    group.bench_function("write", |b| b.iter(|| atom.entity_document(black_box(&one))));
    group.finish();
}

/// A transaction of 100 inserts.
fn batch_body() -> String {
    let mut body = String::from("--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n");
    for row in 0..100 {
        let entity = entity(row);
        let _ = write!(
            body,
            "--c\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n\
             POST /{ACCOUNT}/People HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{entity}\r\n",
            entity.len()
        );
    }
    body.push_str("--c--\r\n--b--\r\n");
    body
}

fn head<'a>(method: &'a str, path: &str, headers: &[(&'a str, &'a str)]) -> Head<'a> {
    let fixed = [("host", "127.0.0.1:10002"), ("x-ms-version", "2019-02-02"), ("accept", "application/json")];
    Head {
        method: method.into(),
        path: format!("/{ACCOUNT}{path}").into(),
        headers: fixed.iter().chain(headers).map(|(n, v)| ((*n).into(), (*v).into())).collect(),
        ..Head::default()
    }
}

fn without_options<'a>(head: &'a Head<'a>, body: &'a [u8]) -> Context<'a> {
    Context { head, options: &NO_OPTIONS, body, grammar: GRAMMAR }
}

fn resolve(head: &Head) -> Target {
    target::resolve(head, &AccountSet::development(vec![])).expect("a target")
}

fn batches(c: &mut Criterion) {
    let body = batch_body();
    let head = head("POST", "/$batch", &[("content-type", "multipart/mixed; boundary=b")]);
    let target = resolve(&head);
    let mut group = c.benchmark_group("batch of 100");
    group.throughput(Throughput::Elements(100));
    group.bench_function("split", |b| {
        b.iter(|| {
            let outer = multipart::parts(black_box(body.as_bytes()), "b").expect("parts");
            multipart::parts(outer[0].content, "c").map(|parts| parts.len())
        });
    });
    group.bench_function("read", |b| {
        b.iter(|| plan::read(&without_options(&head, black_box(body.as_bytes())), &target));
    });
    group.finish();
}

fn signatures(c: &mut Criterion) {
    const DATE: &str = "Thu, 01 Jan 2026 00:00:00 GMT";
    let accounts = AccountSet::development(vec![]);
    let key = &accounts.keys(ACCOUNT).expect("the account")[0];
    let path = "/People(PartitionKey='Jones',RowKey='Mary')";
    let text = format!("{DATE}\n/{ACCOUNT}/{ACCOUNT}{path}");
    let signature = STANDARD.encode(key.sign([text.as_str()]));
    let authorization = format!("SharedKeyLite {ACCOUNT}:{signature}");
    let head = head("GET", path, &[("x-ms-date", DATE), ("authorization", &authorization)]);
    let target = resolve(&head);
    let mut group = c.benchmark_group("signature");
    group.bench_function("sign", |b| b.iter(|| key.sign([black_box(text.as_str())])));
    assert!(
        auth::credentials(&head, &NO_OPTIONS, &target, &accounts, now()).is_ok(),
        "the signature is valid"
    );
    group.bench_function("verify", |b| {
        b.iter(|| auth::credentials(black_box(&head), &NO_OPTIONS, &target, &accounts, now()));
    });
    group.bench_function("understand the request", |b| {
        b.iter(|| plan::read(&without_options(black_box(&head), b""), &target));
    });
    group.finish();
}

/// Accepted queries that take long to plan. The names say what is repeated as often as a filter may compare.
fn long_queries() -> Vec<(&'static str, String)> {
    let repeat = |count: usize, separator: &str, part: &dyn Fn(usize) -> String| {
        (0..count).map(part).collect::<Vec<_>>().join(separator)
    };
    let long = |n: usize| format!("{}{n:04}", "x".repeat(90));
    let filter = |text: String| format!("$filter={}", escape(&text));
    vec![
        ("RowKey ne", filter(repeat(1000, " and ", &|n| format!("RowKey ne 'r{n:04}'")))),
        ("PartitionKey ne", filter(repeat(1000, " and ", &|n| format!("PartitionKey ne 'p{n:04}'")))),
        ("long PartitionKey ne", filter(repeat(900, " and ", &|n| format!("PartitionKey ne '{}'", long(n))))),
        ("long PartitionKey eq", filter(repeat(900, " or ", &|n| format!("PartitionKey eq '{}'", long(n))))),
        (
            "pairs of ne",
            filter(repeat(500, " and ", &|n| format!("(PartitionKey ne 'p{n:04}' or RowKey gt 'r{n:04}')"))),
        ),
        (
            "keys",
            filter(repeat(500, " or ", &|n| format!("(PartitionKey eq 'p{n:04}' and RowKey eq 'r{n:04}')"))),
        ),
        (
            "and of or",
            filter(repeat(31, " and ", &|a| {
                format!(
                    "({})",
                    repeat(32, " or ", &|b| format!("PartitionKey eq 'p{:04}'", (a * 7 + b * 3) % 64))
                )
            })),
        ),
        (
            "or of and of ne",
            filter(repeat(31, " or ", &|a| {
                format!("({})", repeat(32, " and ", &|b| format!("PartitionKey ne 'p{a:04}{b:04}'")))
            })),
        ),
        ("partitions and rows", {
            let partitions = repeat(500, " or ", &|n| format!("PartitionKey eq 'p{n:04}'"));
            filter(format!(
                "({partitions}) and {}",
                repeat(500, " and ", &|n| format!("RowKey ne 'r{n:04}'"))
            ))
        }),
        ("not", filter(repeat(1000, " and ", &|n| format!("not (PartitionKey eq 'p{n:04}')")))),
        ("properties", filter(repeat(1000, " or ", &|n| format!("Property{n:04} eq {n}")))),
        ("$select", format!("$select={}", repeat(252, ",", &|n| format!("{}{n:03}", "P".repeat(58))))),
    ]
}

/// What a serving thread does before the database: at most 2 ms, whatever is accepted.
fn planning(c: &mut Criterion) {
    let mut group = c.benchmark_group("plan");
    for (name, query) in long_queries() {
        let head = Head { query: query.into(), ..head("GET", "/People()", &[]) };
        let target = resolve(&head);
        group.bench_function(name, |b| {
            b.iter(|| {
                let options = Options::parse(&head.query).expect("options");
                let context = Context { options: &options, ..without_options(black_box(&head), b"") };
                match plan::read(&context, &target).expect("an accepted query").kind {
                    RequestKind::One(operation) => operation.plan.expect("a plan"),
                    RequestKind::Batch(_) => unreachable!("the address is that of a table"),
                }
            });
        });
    }
    group.finish();
}

criterion_group!(micro, filters, json, atom, batches, signatures, planning);
criterion_main!(micro);
