#![no_main]
//! Whole requests, as HTTP/1.1 writes them, from their address to their plan.

use libfuzzer_sys::fuzz_target;
use rowhouse_fuzz::{EXTENDED, accounts, assert_refused, http, now};
use rowhouse_protocol::auth::{self, Credentials, bearer};
use rowhouse_protocol::error::Result;
use rowhouse_protocol::plan::batch::Batch;
use rowhouse_protocol::plan::operation::{Context, allowed_methods};
use rowhouse_protocol::plan::{self, RequestKind};
use rowhouse_protocol::request::options::Options;
use rowhouse_protocol::request::{Head, target};

fuzz_target!(|data: &[u8]| {
    let Some((head, body)) = http(data) else { return };
    if let Err(error) = serve(&head, body) {
        assert_refused(&error);
    }
});

fn serve(head: &Head<'_>, body: &[u8]) -> Result<()> {
    let accounts = accounts();
    let target = target::resolve(head, &accounts)?;
    assert!(head.version()?.echo().len() == 10, "a version is a date");
    let options = Options::parse_with(&head.query, head.method == "GET")?;
    let proven = auth::credentials(head, &options, &target, &accounts, now());
    assert!(!matches!(proven, Ok(Credentials::Verified(_))), "nobody has the key");
    match proven {
        Ok(Credentials::Token(token)) => drop(bearer::key_id(&token).map_err(|error| assert_refused(&error))),
        Ok(_) => {}
        Err(error) => assert_refused(&error),
    }
    assert!(allowed_methods(&target.resource, &options).ends_with("OPTIONS"));
    let context = Context { head, options: &options, body, grammar: EXTENDED };
    match plan::read(&context, &target)?.kind {
        RequestKind::One(operation) => operation.plan.map(drop),
        RequestKind::Batch(Batch::ChangeSet { parts, failure, .. }) => {
            let plans = parts.into_iter().map(|part| part.operation.plan).collect();
            plan::change_set(plans, failure.as_ref().map(|failed| &failed.error)).map(drop)
        }
        RequestKind::Batch(Batch::Query(part)) => match *part {
            Ok(part) => part.operation.plan.map(drop),
            Err(failed) => Err(failed.error),
        },
    }
}
