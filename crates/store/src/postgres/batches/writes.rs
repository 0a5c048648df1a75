//! Independent writes that share a statement and its commit.
//!
//! A round has writes of one kind with different keys. Its statement commits by itself, and each write learns whether
//! its own guard held. If the statement fails without effect, each write runs alone, so that a bad or locked row
//! fails only its own request.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::mem;

use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::Fault;
use crate::observe::metrics::{self, METRICS};
use crate::postgres::batches::lane::{Job, LaneQueue, Shared};
use crate::postgres::cluster::buckets::allows_inserts;
use crate::postgres::connections::lease::{Lease, Statement};
use crate::postgres::connections::sessions::LockWait;
use crate::postgres::fault::{Effect, StatementError};
use crate::postgres::rows::{JsonText, broken_row, ticks};
use crate::postgres::state::table_ids::TableId;
use crate::postgres::statements;
use crate::postgres::statements::EntityStatements;
use crate::protocol::model::{IfMatch, Ticks};
use crate::protocol::plan::guarded::MAX_STORED_TEXT;
use crate::protocol::plan::{GuardedWrite, WriteKind};

/// Maximum writes of one statement.
const MAX_ROUND: usize = 128;
/// Bytes of properties beyond which a statement takes no further writes.
const MAX_BYTES: usize = 2 * 1024 * 1024;
/// The SQL/JSON path of all members of an object.
const ALL_MEMBERS: &str = "$.*";

/// A guarded write of one row of a table.
pub(crate) struct RowWrite {
    pub table_id: TableId,
    pub write: GuardedWrite,
    /// The new version, unless the stored version is not older.
    pub now: Ticks,
}

pub(crate) enum GuardedReply {
    /// The write is durable with this version; a delete returns the last version. `None` if the guard did not hold or
    /// the table is gone.
    Tried(Option<Ticks>),
    /// The statement had no effect. The write has to be retried alone.
    Alone(Box<RowWrite>),
}

pub(crate) async fn run_alone(lease: &mut Lease, write: &RowWrite) -> Result<Option<Ticks>, StatementError> {
    if write.is_insert() && !allows_inserts(lease, write.table_id).await? {
        return Ok(None);
    }
    match lease.row(write.statement(lease.statements()), Effect::Unknown).await {
        // The statement had no effect, and the caller must read the row as if the guard had failed.
        Err(StatementError::Undecided) => Ok(None),
        row => row?.as_ref().map(version).transpose(),
    }
}

/// The lane of single writes.
pub(crate) struct Writes;

impl Shared for Writes {
    type Request = RowWrite;
    type Reply = GuardedReply;
    const EFFECT: Effect = Effect::Unknown;
    const LOCK_WAIT: Option<LockWait> = Some(LockWait::Short);
    const TURNS: usize = 8;

    fn metrics() -> (&'static metrics::PoolMetrics, &'static metrics::Rounds) {
        (&METRICS.write_lanes, &METRICS.write_rounds)
    }

    fn bucket(request: &RowWrite) -> i64 {
        request.bucket()
    }

    fn round(waiting: &mut LaneQueue<Self>, statements: &EntityStatements) -> Vec<Job<Self>> {
        let mut round: Vec<Job<Self>> = Vec::with_capacity(waiting.len().min(MAX_ROUND));
        let mut later = LaneQueue::new();
        let (mut bytes, mut keys, mut repeated) = (0, HashSet::new(), LaneQueue::<Self>::new());
        while bytes < MAX_BYTES
            && round.len() < MAX_ROUND
            && let Some(job) = waiting.pop_front()
        {
            let fits =
                round.first().is_none_or(|first| first.request.may_share_with(&job.request, statements));
            if !fits {
                later.push_back(job);
            } else if keys.insert(job.request.fingerprint()) {
                bytes += job.request.properties().len();
                round.push(job);
            } else {
                repeated.push_back(job);
            }
        }
        // Writes of other kinds precede further writes of the same rows, so that a contended row delays no kind by
        // more than one round.
        later.append(&mut repeated);
        later.append(waiting);
        *waiting = later;
        round
    }

    async fn run(mut lease: Lease, mut round: Vec<Job<Self>>) {
        let outcome = if let [only] = round.as_slice() {
            run_alone(&mut lease, &only.request).await.map(|version| vec![Ok(version)])
        } else {
            round.sort_unstable_by(|a, b| a.request.address().cmp(&b.request.address()));
            make_versions_unique(&mut round);
            run_together(&mut lease, &round).await
        };
        match outcome {
            Ok(versions) => {
                round.into_iter().zip(versions).for_each(|(job, v)| job.answer(v.map(GuardedReply::Tried)));
            }
            Err(error) if had_no_effect(error) => {
                METRICS.retried_alone.add(round.len() as u64);
                round
                    .into_iter()
                    .for_each(|job| job.answer_with(|write| Ok(GuardedReply::Alone(Box::new(write)))));
            }
            Err(error) => round.into_iter().for_each(|job| job.answer(Err(error))),
        }
    }
}

/// Returns the outcome of each write of a round, in order.
async fn run_together(
    lease: &mut Lease,
    round: &[Job<Writes>],
) -> Result<Vec<Result<Option<Ticks>, StatementError>>, StatementError> {
    if let Some(first) = round.first().map(|job| &job.request)
        && first.is_insert()
        && !allows_inserts(lease, first.table_id).await?
    {
        return Ok(vec![Ok(None); round.len()]);
    }
    let statement = statement_of(round, lease.statements());
    let rows = lease.rows(statement, Effect::Unknown).await?;
    Ok(versions(round, &rows))
}

impl RowWrite {
    const fn is_insert(&self) -> bool {
        self.write.kind.may_insert()
    }

    /// Whether one statement can execute both writes. They must be of one kind and, with distributed entities, of one
    /// bucket.
    fn may_share_with(&self, other: &Self, statements: &EntityStatements) -> bool {
        let kind = |write: &Self| (mem::discriminant(&write.write.kind), write.is_insert());
        kind(self) == kind(other) && (!statements.is_distributed || self.bucket() == other.bucket())
    }

    pub(crate) fn bucket(&self) -> i64 {
        self.table_id.bucket(&self.write.key.partition)
    }

    pub(crate) fn address(&self) -> (i64, &str, &str) {
        (self.bucket(), &self.write.key.partition, &self.write.key.row)
    }

    /// A hash of the row's address. A collision only delays a write by one round.
    fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.address().hash(&mut hasher);
        hasher.finish()
    }

    fn properties(&self) -> &str {
        self.write.properties.as_str()
    }

    /// Returns the version that the stored row must have, if the write requires one.
    fn guard(&self) -> Option<i64> {
        self.write.kind.version().map(Ticks::raw)
    }

    /// Returns the statement that executes this write alone.
    pub(crate) fn statement(&self, chosen: &EntityStatements) -> Statement<'_> {
        let text = match self.write.kind {
            WriteKind::Insert => chosen.one.insert,
            WriteKind::Replace(IfMatch::Absent) => chosen.one.upsert,
            WriteKind::Replace(_) => statements::UPDATE,
            WriteKind::Merge(IfMatch::Absent) => chosen.one.insert_or_merge,
            WriteKind::Merge(_) => statements::MERGE,
            WriteKind::Delete(_) => statements::DELETE,
        };
        let (bucket, partition, row) = self.address();
        let mut query = sqlx::query(text).bind(bucket).bind(partition).bind(row).bind(self.table_id.table_no);
        if !matches!(self.write.kind, WriteKind::Delete(_)) {
            query = query.bind(self.now.raw()).bind(JsonText(self.properties()));
        }
        if let Some(limits) = &self.write.limits {
            query = bounded(query.bind(limits.annotations.as_str()).bind(limits.max_members));
        }
        if self.is_insert() { query } else { query.bind(self.guard()) }
    }
}

/// Binds the limits of merged entities.
pub(crate) fn bounded(query: Statement<'_>) -> Statement<'_> {
    query.bind(MAX_STORED_TEXT).bind(ALL_MEMBERS)
}

/// Returns the version of a written row. If the version is unreadable, the outcome is unknown, because the row was
/// written.
fn version(row: &PgRow) -> Result<Ticks, StatementError> {
    let version = row.try_get("modified").map_err(broken_row).and_then(ticks);
    version.map_err(|_| Fault::Timeout.into())
}

/// Whether the server reported that the statement failed, so that its writes may be retried one by one.
const fn had_no_effect(error: StatementError) -> bool {
    match error {
        StatementError::Duplicate
        | StatementError::KeyTooLong
        | StatementError::Undecided
        | StatementError::NeedsPermit
        | StatementError::Held => true,
        StatementError::Fault(fault) => matches!(fault, Fault::Serialization | Fault::Other),
    }
}

/// Makes the versions unique. Versions identify the rows that a statement inserts or merges into.
fn make_versions_unique(round: &mut [Job<Writes>]) {
    let mut used = HashSet::with_capacity(round.len());
    for job in round {
        while !used.insert(job.request.now) {
            job.request.now = job.request.now.next();
        }
    }
}

fn statement_of<'r>(round: &'r [Job<Writes>], statements: &EntityStatements) -> Statement<'r> {
    let requests = || round.iter().map(|job| &job.request);
    let first = requests().next();
    let kind = first.map_or(WriteKind::Insert, |first| first.write.kind);
    let text = match kind {
        WriteKind::Insert => statements.each.insert,
        WriteKind::Replace(IfMatch::Absent) => statements.each.upsert,
        WriteKind::Replace(_) => statements.each.update,
        WriteKind::Merge(IfMatch::Absent) => statements.each.insert_or_merge,
        WriteKind::Merge(_) => statements.each.merge,
        WriteKind::Delete(_) => statements.each.delete,
    };
    let mut query = sqlx::query(text);
    let only = first.filter(|_| statements.is_distributed);
    query = match only {
        Some(only) => query.bind(only.bucket()),
        None => query.bind(requests().map(RowWrite::bucket).collect::<Vec<_>>()),
    };
    query = query.bind(requests().map(|r| r.write.key.partition.as_str()).collect::<Vec<_>>());
    query = query.bind(requests().map(|r| r.write.key.row.as_str()).collect::<Vec<_>>());
    query = match only {
        Some(only) => query.bind(only.table_id.table_no),
        None => query.bind(requests().map(|r| r.table_id.table_no).collect::<Vec<_>>()),
    };
    if !matches!(kind, WriteKind::Delete(_)) {
        query = query.bind(requests().map(|r| r.now.raw()).collect::<Vec<_>>());
        query = query.bind(requests().map(|r| JsonText(r.properties())).collect::<Vec<_>>());
    }
    if matches!(kind, WriteKind::Merge(_)) {
        let limits = || requests().filter_map(|r| r.write.limits.as_ref());
        query = query.bind(limits().map(|limits| limits.annotations.as_str()).collect::<Vec<_>>());
        query = bounded(query.bind(limits().map(|limits| limits.max_members).collect::<Vec<_>>()));
    }
    if kind.may_insert() { query } else { query.bind(requests().map(RowWrite::guard).collect::<Vec<_>>()) }
}

/// Returns the outcome of each write of a round, in order.
fn versions(round: &[Job<Writes>], rows: &[PgRow]) -> Vec<Result<Option<Ticks>, StatementError>> {
    let mut versions = vec![Ok(None); round.len()];
    for row in rows {
        match index_of(round, row) {
            Ok(Some(at)) => versions[at] = version(row).map(Some),
            // Some unidentified writes were committed, so none of them may be reported as failed.
            Ok(None) => return vec![Err(Fault::Timeout.into()); round.len()],
            Err(error) => {
                broken_row(error);
                return vec![Err(Fault::Timeout.into()); round.len()];
            }
        }
    }
    versions
}

/// Returns the index of the write that produced a row.
fn index_of(round: &[Job<Writes>], row: &PgRow) -> Result<Option<usize>, sqlx::Error> {
    Ok(match round.first().map(|job| job.request.write.kind) {
        Some(WriteKind::Insert) | None => {
            let modified: i64 = row.try_get("modified")?;
            round.iter().position(|job| job.request.now.raw() == modified)
        }
        Some(upsert) if upsert.may_insert() => {
            let address: (i64, &str, &str) = (row.try_get("bucket")?, row.try_get("pk")?, row.try_get("rk")?);
            round.binary_search_by(|job| job.request.address().cmp(&address)).ok()
        }
        Some(_) => {
            let n: i64 = row.try_get("n")?;
            usize::try_from(n - 1).ok().filter(|at| *at < round.len())
        }
    })
}
