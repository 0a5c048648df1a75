//! The routes of the admin listener.

use std::sync::LazyLock;

use super::about::VersionReport;
use super::accounts::{AccountLimits, AddAccount, AddedAccount, ChosenQueries, RotateKey};
use super::call::Call;
use super::console::requests::RequestsReport;
use super::console::sas::{InspectRequest, SasRequest, SignedSas};
use super::console::session::SessionReport;
use super::console::{assets, explain, history, requests, sas, session};
use super::deleted::{DeletedTablesReport, PurgedTable, UndeleteRequest};
use super::faults::FaultRuleList;
use super::history::HistoryReport;
use super::indexes::{DroppedIndex, IndexSuggestion};
use super::reply::{Outcome, Reply, Status};
use super::reset::{SnapshotName, Snapshots};
use super::route::{OtherAnswer, QueryField, Route, for_tests, guarded, open, service, token};
use super::tables::{CountReport, TablesReport};
use super::{about, accounts, cluster, deleted, expiry, faults, indexes, openapi, reset, tables};
use crate::operator::expiry::NewRule;
use crate::operator::indexes::IndexRequest;
use crate::operator::reports::{
    AccountLimit, AccountQueries, AccountReport, AccountSwitch, ClusterReport, ExpiryReport, IndexReport,
    NamedTable, RemovedAccount, RotatedKey, UndeletedTableReport,
};
use crate::protocol::auth::explain_sas::SasReport;
use crate::service::{ExplainRequest, ExplainedQuery, FaultRule};

/// All routes, in the order of the documentation. The first matching route is used.
pub(crate) const ROUTES: &[Route] = &[
    open("GET", "/livez", |call| Box::pin(about::live(call)))
        .about("live", "Whether the process runs")
        .answers::<Status>("The process runs."),
    open("GET", "/readyz", |call| Box::pin(about::ready(call)))
        .about("ready", "Whether the database answers within two seconds and the server is not stopping")
        .answers::<Status>("The server is ready.")
        .others(&[(503, "Stopping, or DatabaseUnavailable.")]),
    guarded("GET", "/metrics", |call| Box::pin(about::metrics(call)))
        .about("metrics", "All metrics")
        .answers_text(
            "The text format of Prometheus, 0.0.4, or that of OpenMetrics if Accept prefers it.",
            &["text/plain", "application/openmetrics-text"],
        ),
    guarded("GET", "/version", |call| Box::pin(about::version(call)))
        .about("version", "Name, version and database of this server")
        .answers::<VersionReport>("Name, version, database and uptime."),
    guarded("GET", "/openapi.json", |call| Box::pin(document(call)))
        .about("openapi", "This OpenAPI document")
        .answers::<serde_json::Map<String, serde_json::Value>>("An OpenAPI document."),
    guarded("GET", "/cluster", |call| Box::pin(cluster::status(call)))
        .about("getCluster", "The nodes of the Citus cluster that the database is distributed over")
        .answers::<Option<ClusterReport>>("The nodes, each asked now; null for a single server.")
        .others(&[TIMED_OUT, (503, "DatabaseUnavailable, or ServerBusy.")]),
    guarded("GET", "/tables", |call| Box::pin(tables::tables(call)))
        .about("tables", "The sizes of an account's tables, in the order of their names")
        .details(
            "At most 10000 entities of each table are counted, so the cost of a call does not depend on the sizes. \
             Where complete is false, entities and bytes are lower bounds, and total has what else is known. An \
             answer ends after 25 tables or five seconds.",
        )
        .query(tables::QUERY)
        .answers::<TablesReport<'static>>("The tables and their sizes.")
        .others(&[PARAMETER, NO_ACCOUNT, NO_ANSWER]),
    guarded("GET", "/deleted-tables", |call| Box::pin(deleted::list(call)))
        .about("listDeletedTables", "Deleted tables that can be restored")
        .details(
            "The last deleted tables, 100 at most, with their sizes. A size is that of the first 10000 entities; if \
             complete is false, the table holds more. A size that took too long to measure is null.",
        )
        .query(&[OF_ACCOUNT])
        .answers::<DeletedTablesReport>("The tables, the last deleted first.")
        .others(&[PARAMETER, NO_ACCOUNT, TIMED_OUT, NO_ANSWER]),
    token("POST", "/deleted-tables/{id}/undelete", |call| Box::pin(deleted::undelete(call)))
        .changing()
        .about("undeleteTable", "Restore a deleted table")
        .details(
            "The table gets its entities, their ETags, its access policies and its expiry rule. A server builds its \
             property indexes again.",
        )
        .optional_body::<UndeleteRequest>()
        .answers::<UndeletedTableReport>("The table is restored.")
        .others(&[
            (404, "DeletedTableNotFound."),
            (
                409,
                "TableAlreadyExists. RenamedTooSoon: on PostgreSQL, a table can have another name ten minutes after \
                 it was deleted.",
            ),
            TIMED_OUT,
            NO_ANSWER,
        ]),
    token("DELETE", "/deleted-tables/{id}", |call| Box::pin(deleted::purge(call)))
        .changing()
        .about("purgeDeletedTable", "Purge a deleted table before its time has ended")
        .details("The table cannot be restored any more. Servers remove its entities from now on.")
        .answers::<PurgedTable>("The table is being purged.")
        .others(&[(404, "DeletedTableNotFound."), TIMED_OUT, NO_ANSWER]),
    guarded("GET", "/indexes", |call| Box::pin(indexes::list(call)))
        .about("indexes", "The property indexes, with their state, size and use")
        .query(indexes::QUERY)
        .answers::<Vec<IndexReport>>("The indexes.")
        .others(&[PARAMETER, NO_ANSWER]),
    token("POST", "/indexes", |call| Box::pin(indexes::add(call)))
        .changing()
        .about("addIndex", "Create an index of a property of a table")
        .details(
            "A server on the database begins to build the index within seconds. On SQLite, writes wait while it is \
             built. Answers to filters do not change; they use the index once it is ready.",
        )
        .body::<IndexRequest>()
        .creates::<IndexReport>("The index, which is to be built.")
        .others(&[
            (400, "A name or the kind is invalid, or the values have several types."),
            (404, "AccountNotFound, or TableNotFound."),
            (409, "IndexAlreadyExists. TooManyIndexes: a table can have 8, a database 64."),
            NO_ANSWER,
        ]),
    token("DELETE", "/indexes/{id}", |call| Box::pin(indexes::remove(call)))
        .changing()
        .about("dropIndex", "Drop an index, even one that is being built")
        .details("Servers stop using the index within seconds, and then free its space.")
        .answers::<DroppedIndex>("The index is no longer used.")
        .others(&[(404, "IndexNotFound."), NO_ANSWER]),
    guarded("GET", "/index-suggestions", |call| Box::pin(indexes::suggestions(call)))
        .about("indexSuggestions", "The cost of filters without an index on this server, by property")
        .details(
            "Since the start of the server, the highest cost first; at most 256 properties. Only pages that returned \
             one row in ten or fewer of at least 1000 count.",
        )
        .answers::<Vec<IndexSuggestion>>("The properties.")
        .others(&[NO_ANSWER]),
    guarded("GET", "/accounts", |call| Box::pin(accounts::list(call)))
        .about("listAccounts", "The accounts of the database, by name, without their keys")
        .answers::<Vec<AccountReport>>("The accounts.")
        .others(&[NO_MASTER_KEY, TIMED_OUT, NO_ANSWER]),
    token("POST", "/accounts", |call| Box::pin(accounts::add(call)))
        .changing()
        .about("addAccount", "Add an account, and return its keys once")
        .details(APPLIED)
        .body::<AddAccount>()
        .creates::<AddedAccount<'static>>("The account with its keys.")
        .others(&[
            (400, "InvalidAccountName, or InvalidKey."),
            (409, "AccountExists."),
            NOT_STORED,
            OTHER_MASTER_KEY,
            UNKNOWN,
            NO_ANSWER,
        ]),
    guarded("GET", "/accounts/{name}", |call| Box::pin(accounts::read(call)))
        .about("readAccount", "One account, without its keys")
        .answers::<AccountReport>("The account.")
        .others(&[NO_ACCOUNT, NOT_STORED, TIMED_OUT, NO_ANSWER]),
    token("DELETE", "/accounts/{name}", |call| Box::pin(accounts::remove(call)))
        .changing()
        .about("removeAccount", "Remove an account and its keys; its tables stay inaccessible until its name is added again")
        .details(APPLIED)
        .answers::<RemovedAccount<'static>>("The account is removed.")
        .others(&[NO_BODY, NO_ACCOUNT, NOT_STORED, UNKNOWN, NO_ANSWER]),
    token("POST", "/accounts/{name}/disable", |call| Box::pin(accounts::set_disabled(call, true)))
        .changing()
        .about("disableAccount", "Refuse the requests of an account; its keys and tables stay")
        .details(APPLIED)
        .answers::<AccountSwitch<'static>>("The account is disabled.")
        .others(&[NO_BODY, NO_ACCOUNT, NOT_STORED, UNKNOWN, NO_ANSWER]),
    token("POST", "/accounts/{name}/enable", |call| Box::pin(accounts::set_disabled(call, false)))
        .changing()
        .about("enableAccount", "Serve a disabled account again")
        .details(APPLIED)
        .answers::<AccountSwitch<'static>>("The account is enabled.")
        .others(&[NO_BODY, NO_ACCOUNT, NOT_STORED, UNKNOWN, NO_ANSWER]),
    guarded("GET", "/accounts/{name}/limits", |call| Box::pin(accounts::read_limits(call)))
        .about("readLimits", "The limits of an account of the database or of the settings")
        .answers::<AccountLimit<'static>>("The limits.")
        .others(&[NO_ACCOUNT, TIMED_OUT, NO_ANSWER]),
    token("PUT", "/accounts/{name}/limits", |call| Box::pin(accounts::set_limits(call)))
        .changing()
        .about("setLimits", "Limit the requests per second of an account on each server, or remove its limit")
        .details(APPLIED)
        .body::<AccountLimits>()
        .answers::<AccountLimit<'static>>("The new limits.")
        .others(&[(400, "InvalidLimit: the limit is not 1 to 1000000."), NO_ACCOUNT, UNKNOWN, NO_ANSWER]),
    guarded("GET", "/accounts/{name}/queries", |call| Box::pin(async move { accounts::read_queries(call) }))
        .about("readQueries", "Whether this server answers extended queries of an account")
        .details("The account may be one of the database or of the settings.")
        .answers::<AccountQueries<'static>>("The choice.")
        .others(&[NO_ACCOUNT]),
    token("PUT", "/accounts/{name}/queries", |call| Box::pin(accounts::set_queries(call)))
        .changing()
        .about("setQueries", "Allow or forbid extended queries for the clients of an account")
        .details(APPLIED)
        .body::<ChosenQueries>()
        .answers::<AccountQueries<'static>>("The new choice.")
        .others(&[NO_ACCOUNT, UNKNOWN, NO_ANSWER]),
    token("POST", "/accounts/{name}/rotate", |call| Box::pin(accounts::rotate(call)))
        .changing()
        .about("rotateKey", "Generate a new key in one slot, and return it once; the other key keeps working")
        .details(APPLIED)
        .body::<RotateKey>()
        .answers::<RotatedKey<'static>>("The new key.")
        .others(&[
            NO_ACCOUNT,
            NOT_STORED,
            OTHER_MASTER_KEY,
            (409, "Contended: another caller changed the account."),
            UNKNOWN,
            NO_ANSWER,
        ]),
    guarded("GET", "/accounts/{name}/tables/{table}/count", |call| Box::pin(tables::count(call)))
        .about("count", "Count the entities of a table, all or those that match a filter")
        .details(
            "A call counts for five seconds at most; the sum of the calls is the count. It is exact if no one writes \
             meanwhile.",
        )
        .query(tables::COUNT_QUERY)
        .answers::<CountReport>("The number of entities.")
        .others(&[
            (400, "BadRequest, or the error of an invalid filter."),
            (404, "AccountNotFound, or TableNotFound."),
            (409, "TableRespread: the spread of the table was changed since from."),
            TIMED_OUT,
            NO_ANSWER,
        ]),
    guarded("GET", "/expiry", |call| Box::pin(expiry::list(call)))
        .about("listExpiry", "The tables whose entities expire, with the progress of the deletion")
        .query(&[OF_ACCOUNT])
        .answers::<Vec<ExpiryReport>>("The rules, by account and table.")
        .others(&[PARAMETER, NO_ACCOUNT, TIMED_OUT, NO_ANSWER]),
    token("PUT", "/accounts/{name}/tables/{table}/expiry", |call| Box::pin(expiry::set(call)))
        .changing()
        .about("setExpiry", "Set when the entities of a table expire")
        .details(
            "Servers delete expired entities in small steps, beginning within seconds. Clients see an expired entity \
             until it is deleted.",
        )
        .body::<NewRule>()
        .answers::<ExpiryReport>("The rule.")
        .others(&[
            (404, "AccountNotFound, or TableNotFound."),
            (409, "OtherRule: another rule was set at the same time."),
            UNKNOWN,
            NO_ANSWER,
        ]),
    token("DELETE", "/accounts/{name}/tables/{table}/expiry", |call| Box::pin(expiry::clear(call)))
        .changing()
        .about("clearExpiry", "Remove the rule of a table, so that its entities no longer expire")
        .answers::<NamedTable<'static>>("The table.")
        .others(&[
            (400, "BadRequest: the name is invalid."),
            (404, "AccountNotFound. NotSet: the table has no rule."),
            UNKNOWN,
            NO_ANSWER,
        ]),
    for_tests("POST", "/test/reset", |call| Box::pin(reset::reset(call)))
        .changing()
        .about("reset", "Empty all accounts, or one")
        .details(
            "Deletes tables, entities, policies and service properties, but not the accounts; without an account, \
             also the fault rules.",
        )
        .query(reset::QUERY)
        .answers::<Status>("The accounts are empty.")
        .others(&[PARAMETER, NO_ACCOUNT, NO_ANSWER]),
    for_tests("GET", "/test/snapshots", |call| Box::pin(reset::list(call)))
        .about("snapshots", "All snapshots, the oldest first")
        .answers::<Snapshots>("The snapshots.")
        .others(&[NO_ANSWER]),
    for_tests("POST", "/test/snapshots", |call| Box::pin(reset::take(call)))
        .changing()
        .about("takeSnapshot", "Take a snapshot of all accounts, or of one")
        .details(
            "At most 64 are kept. They are lost when the server stops and, on PostgreSQL, when the connection that \
             keeps them is lost.",
        )
        .query(reset::QUERY)
        .answers::<SnapshotName>("The name of the snapshot.")
        .others(&[PARAMETER, NO_ACCOUNT, (409, "TooManySnapshots: there are 64."), NO_ANSWER]),
    for_tests("POST", "/test/snapshots/{name}/restore", |call| Box::pin(reset::restore(call)))
        .changing()
        .about("restoreSnapshot", "Restore a snapshot, which stays")
        .answers::<Status>("The state is that of the snapshot, including ETags and timestamps.")
        .others(&[(404, "SnapshotNotFound."), NO_ANSWER]),
    for_tests("DELETE", "/test/snapshots/{name}", |call| Box::pin(reset::discard(call)))
        .changing()
        .about("deleteSnapshot", "Delete a snapshot")
        .answers::<Status>("The snapshot is deleted.")
        .others(&[(404, "SnapshotNotFound."), NO_ANSWER]),
    for_tests("GET", "/test/faults", |call| Box::pin(async { faults::list(call) }))
        .about("faultRules", "The fault rules with their counts")
        .answers::<FaultRuleList>("The rules.")
        .others(&[NO_PARAMETER]),
    for_tests("PUT", "/test/faults", |call| Box::pin(async { faults::set(call) }))
        .changing()
        .about("setFaultRules", "Replace all fault rules")
        .body::<Vec<FaultRule>>()
        .answers::<FaultRuleList>("The rules, with counts at zero.")
        .others(&[(400, "A rule is invalid, there are more than 100, or there is a parameter; nothing is changed.")]),
    for_tests("DELETE", "/test/faults", |call| Box::pin(async { faults::clear(call) }))
        .changing()
        .about("clearFaultRules", "Remove all fault rules")
        .answers::<FaultRuleList>("An empty list.")
        .others(&[NO_PARAMETER]),
    open("GET", "/", |call| Box::pin(assets::redirect(call)))
        .of_console()
        .about("rootRedirect", "Redirect to the console")
        .redirects("The console is at /console/."),
    open("GET", "/console", |call| Box::pin(assets::redirect(call)))
        .of_console()
        .about("consoleRedirect", "Redirect to the console")
        .redirects("The console is at /console/."),
    token("GET", "/console/api/session", |call| Box::pin(session::session(call)))
        .of_console()
        .about("session", "The state of the server that the console shows")
        .answers::<SessionReport>("The state of the server and the accounts that it serves."),
    open("GET", "/console/{asset...}", |call| Box::pin(assets::asset(call)))
        .of_console()
        .about("consoleAsset", "A file of the console")
        .details("The asset may be empty, for the page itself.")
        .answers_text("The file.", &["text/html"])
        .others(&[(304, "The file that If-None-Match names is the current one."), (404, "There is no such file.")]),
    token("GET", "/requests", |call| Box::pin(requests::requests(call)))
        .of_console()
        .about("requests", "The last requests that this server has answered")
        .details(
            "Until the first call of this path or of /console/api/session, the server keeps only refused and slow \
             requests.",
        )
        .query(requests::QUERY)
        .answers::<RequestsReport>("Requests in the order of their ids.")
        .others(&[PARAMETER]),
    token("GET", "/history", |call| Box::pin(history::history(call)))
        .of_console()
        .about("history", "The last hour of this server")
        .answers::<HistoryReport>(
            "Points of ten seconds each, the oldest first. A table has a point for each request of /tables.",
        ),
    token("POST", "/explain", |call| Box::pin(explain::explain(call)))
        .of_console()
        .about("explain", "How the server answers a query, and the cost of one page")
        .body::<ExplainRequest>()
        .answers::<ExplainedQuery>("The ranges of keys that are read, and the residual filter.")
        .others(&[
            (400, "The error of an invalid query, as on the Tables port."),
            (404, "AccountNotFound, or TableNotFound."),
            TIMED_OUT,
            NO_ANSWER,
        ]),
    token("POST", "/sas", |call| Box::pin(sas::sign(call)))
        .of_console()
        .changing()
        .about("sas", "Sign a shared access signature, unless the console is read-only")
        .body::<SasRequest>()
        .answers::<SignedSas>("The token.")
        .others(&[
            (400, "InvalidSas: servers would refuse the SAS."),
            NO_ACCOUNT,
            (409, "NoSuchKey: the account lacks the key, or is disabled."),
        ]),
    token("POST", "/sas/inspect", |call| Box::pin(sas::inspect(call)))
        .of_console()
        .about("inspectSas", "What a shared access signature allows, and why servers refuse it")
        .body::<InspectRequest>()
        .answers::<SasReport>("The fields, and every problem.")
        .others(&[(400, "There is no SAS to inspect."), NO_ACCOUNT, TIMED_OUT, NO_ANSWER]),
    service("GET", "getService", "Read as on the Tables port, with the rights of an operator"),
    service("POST", "postService", "Insert, or send a batch, as on the Tables port, with the rights of an operator"),
    service("PUT", "putService", "Replace as on the Tables port, with the rights of an operator"),
    service("PATCH", "patchService", "Merge as on the Tables port, with the rights of an operator"),
    service("DELETE", "deleteService", "Delete as on the Tables port, with the rights of an operator"),
];

const PARAMETER: OtherAnswer = (400, "A parameter is invalid.");
const NO_PARAMETER: OtherAnswer = (400, "There is a parameter.");
const NO_BODY: OtherAnswer = (400, "BadRequest: the body must be empty or {}.");
const NO_ACCOUNT: OtherAnswer = (404, "AccountNotFound.");
const NO_MASTER_KEY: OtherAnswer = (409, "NoMasterKey: the server was started without one.");
const NOT_STORED: OtherAnswer = (
    409,
    "NoMasterKey: the server was started without one. AccountOfSettings: the account is one of the server's settings.",
);
const OTHER_MASTER_KEY: OtherAnswer =
    (409, "OtherMasterKey: the server's master key does not decrypt the stored keys.");
const TIMED_OUT: OtherAnswer = (500, "OperationTimedOut.");
const UNKNOWN: OtherAnswer = (500, "OperationTimedOut: the change may or may not have been made.");
const NO_ANSWER: OtherAnswer = (503, "ServerBusy: the database did not answer.");

const APPLIED: &str = "This server applies a change before it answers; other servers on the same database do so within seconds.";
const OF_ACCOUNT: QueryField = QueryField::text("account", "Only the tables of this account.");

/// Generated once, because clients choose how often they request it.
static DOCUMENT: LazyLock<Reply> = LazyLock::new(|| Reply::json(200, &openapi::generate(ROUTES)));

/// Returns the OpenAPI document.
async fn document(_: &Call<'_>) -> Outcome {
    Ok(DOCUMENT.clone())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::server::admin::route::ListenerPart;

    /// The committed document, for readers and for reviews of changes.
    const COMMITTED: &str = "docs/reference/openapi.json";

    #[test]
    fn the_committed_document_is_the_generated_one() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(COMMITTED);
        let generated = format!("{}\n", serde_json::to_string_pretty(&openapi::generate(ROUTES)).unwrap());
        if std::env::var_os("ROWHOUSE_WRITE_OPENAPI").is_some() {
            std::fs::write(&path, &generated).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        let is_same = committed == generated;
        assert!(is_same, "{COMMITTED} is old: ROWHOUSE_WRITE_OPENAPI=1 cargo test --lib routes");
    }

    #[test]
    fn each_operation_has_a_name_of_its_own() {
        let mut ids: Vec<&str> = ROUTES.iter().map(|route| route.description.id).collect();
        ids.sort_unstable();
        let count = ids.len();
        ids.dedup();
        assert_eq!(ids.len(), count);
    }

    #[test]
    fn routes_for_tests_and_only_those_begin_with_test() {
        let for_tests =
            |route: &Route| (route.part == ListenerPart::TestMode) == route.path.starts_with("/test/");
        assert!(ROUTES.iter().all(for_tests));
    }
}
