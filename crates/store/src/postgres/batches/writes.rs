//! Independent writes that share a statement and its commit.
//!
//! A round has writes of one kind, with different keys. Its statement commits by itself; each write
//! learns whether its own guard held. If the statement fails without effect, each of its writes is
//! run alone, so that a bad or locked row fails only its own request.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

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
use crate::protocol::model::entity::StoredProperties;
use crate::protocol::model::{Key, Ticks};
use crate::protocol::plan::merge_limits::MAX_STORED_TEXT;

/// Maximum writes of one statement.
const MAX_ROUND: usize = 128;
/// A statement with more bytes of properties than this takes no further writes.
const MAX_BYTES: usize = 2 * 1024 * 1024;
/// The SQL/JSON path of all members of an object.
const ALL_MEMBERS: &str = "$.*";

/// What a statement does, and under which guard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GuardedChange {
    /// Inserts a row if none exists.
    Insert(StoredProperties),
    /// Inserts or replaces a row.
    Upsert(StoredProperties),
    /// Replaces a row with this version; `None`: any.
    Update(StoredProperties, Option<i64>),
    /// Merges into a row with this version (`None`: any), if [`Merging`] allows it without a read.
    Merge(Merging, Option<i64>),
    /// Inserts a row, or merges into the existing one under the same condition.
    InsertOrMerge(Merging),
    /// Deletes a row with this version; `None`: any.
    Delete(Option<i64>),
}

/// What is merged, and which rows it may be merged into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Merging {
    pub properties: StoredProperties,
    /// Annotations that the stored row must not have, joined by commas, which names cannot contain.
    pub annotations: String,
    /// Maximum members of the stored row.
    pub max_members: i32,
}

/// One guarded write of one row.
pub(crate) struct GuardedWrite {
    pub table_id: TableId,
    pub key: Key,
    pub change: GuardedChange,
    /// The new version, unless the stored one is not older.
    pub now: Ticks,
}

/// The outcome of a write.
pub(crate) enum GuardedReply {
    /// It is durable, with this version (of a delete: the last one); `None` if the guard did not hold, or
    /// the table is gone.
    Tried(Option<Ticks>),
    /// Nothing was done: the write has to be retried alone.
    Alone(Box<GuardedWrite>),
}

pub(crate) async fn run_alone(
    lease: &mut Lease,
    write: &GuardedWrite,
) -> Result<Option<Ticks>, StatementError> {
    if write.is_insert() && !allows_inserts(lease, write.table_id).await? {
        return Ok(None);
    }
    match lease.row(write.statement(lease.statements()), Effect::Unknown).await {
        // Nothing was done, and the row must be read, as if its guard did not hold.
        Err(StatementError::Undecided) => Ok(None),
        row => row?.as_ref().map(version).transpose(),
    }
}

/// The lane of single writes.
pub(crate) struct Writes;

impl Shared for Writes {
    type Request = GuardedWrite;
    type Reply = GuardedReply;
    const EFFECT: Effect = Effect::Unknown;
    const LOCK_WAIT: Option<LockWait> = Some(LockWait::Short);
    const TURNS: usize = 8;

    fn metrics() -> (&'static metrics::PoolMetrics, &'static metrics::Rounds) {
        (&METRICS.write_lanes, &METRICS.write_rounds)
    }

    fn bucket(request: &GuardedWrite) -> i64 {
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
        // Other kinds precede further writes of the same rows, so that a contended row delays no kind by more
        // than one round.
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
            Err(error) if undone(error) => {
                METRICS.retried_alone.add(round.len() as u64);
                round
                    .into_iter()
                    .for_each(|job| job.answer_with(|write| Ok(GuardedReply::Alone(Box::new(write)))));
            }
            Err(error) => round.into_iter().for_each(|job| job.answer(Err(error))),
        }
    }
}

/// The outcome of each write of a round, in its order.
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

impl GuardedWrite {
    /// Whether it may store a new row.
    const fn is_insert(&self) -> bool {
        matches!(
            self.change,
            GuardedChange::Insert(_) | GuardedChange::Upsert(_) | GuardedChange::InsertOrMerge(_)
        )
    }

    /// Whether one statement can do both: writes of one kind and, where entities are
    /// distributed, of one bucket.
    fn may_share_with(&self, other: &Self, statements: &EntityStatements) -> bool {
        std::mem::discriminant(&self.change) == std::mem::discriminant(&other.change)
            && (!statements.is_distributed || self.bucket() == other.bucket())
    }

    pub(crate) fn bucket(&self) -> i64 {
        self.table_id.bucket(&self.key.partition)
    }

    pub(crate) fn address(&self) -> (i64, &str, &str) {
        (self.bucket(), &self.key.partition, &self.key.row)
    }

    /// A hash of the address. A collision only makes a write wait for one more round.
    fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.address().hash(&mut hasher);
        hasher.finish()
    }

    fn properties(&self) -> &str {
        match &self.change {
            GuardedChange::Insert(p) | GuardedChange::Upsert(p) | GuardedChange::Update(p, _) => p.as_str(),
            GuardedChange::Merge(m, _) | GuardedChange::InsertOrMerge(m) => m.properties.as_str(),
            GuardedChange::Delete(_) => "",
        }
    }

    const fn merging(&self) -> Option<&Merging> {
        match &self.change {
            GuardedChange::Merge(merging, _) | GuardedChange::InsertOrMerge(merging) => Some(merging),
            _ => None,
        }
    }

    const fn wanted(&self) -> Option<i64> {
        match &self.change {
            GuardedChange::Update(_, wanted)
            | GuardedChange::Merge(_, wanted)
            | GuardedChange::Delete(wanted) => *wanted,
            GuardedChange::Insert(_) | GuardedChange::Upsert(_) | GuardedChange::InsertOrMerge(_) => None,
        }
    }

    /// Returns the statement for this write alone.
    pub(crate) fn statement(&self, chosen: &EntityStatements) -> Statement<'_> {
        let text = match &self.change {
            GuardedChange::Insert(_) => chosen.one.insert,
            GuardedChange::Upsert(_) => chosen.one.upsert,
            GuardedChange::Update(..) => statements::UPDATE,
            GuardedChange::Merge(..) => statements::MERGE,
            GuardedChange::InsertOrMerge(_) => chosen.one.insert_or_merge,
            GuardedChange::Delete(_) => statements::DELETE,
        };
        let query = sqlx::query(text)
            .bind(self.bucket())
            .bind(&self.key.partition)
            .bind(&self.key.row)
            .bind(self.table_id.table_no);
        match &self.change {
            GuardedChange::Insert(_) | GuardedChange::Upsert(_) => self.put(query),
            GuardedChange::Update(_, wanted) => self.put(query).bind(*wanted),
            GuardedChange::Merge(merging, wanted) => self.merge(query, merging).bind(*wanted),
            GuardedChange::InsertOrMerge(merging) => self.merge(query, merging),
            GuardedChange::Delete(wanted) => query.bind(*wanted),
        }
    }

    fn put<'q>(&'q self, query: Statement<'q>) -> Statement<'q> {
        query.bind(self.now.raw()).bind(JsonText(self.properties()))
    }

    fn merge<'q>(&'q self, query: Statement<'q>, merging: &'q Merging) -> Statement<'q> {
        bounded(self.put(query).bind(merging.annotations.as_str()).bind(merging.max_members))
    }
}

/// Binds the limits of merged entities, which are constants.
pub(crate) fn bounded(query: Statement<'_>) -> Statement<'_> {
    query.bind(MAX_STORED_TEXT).bind(ALL_MEMBERS)
}

/// Returns the version of a written row. If it cannot be read, the outcome is unknown, because the row
/// was written.
fn version(row: &PgRow) -> Result<Ticks, StatementError> {
    let version = row.try_get("modified").map_err(broken_row).and_then(ticks);
    version.map_err(|_| Fault::Timeout.into())
}

/// Whether the server reported that the statement failed, so that its writes may be retried one by one.
const fn undone(error: StatementError) -> bool {
    match error {
        StatementError::Duplicate
        | StatementError::KeyTooLong
        | StatementError::Undecided
        | StatementError::NeedsPermit
        | StatementError::Held => true,
        StatementError::Fault(fault) => matches!(fault, Fault::Serialization | Fault::Other),
    }
}

/// Makes the versions unique: they identify the rows of an insert, and those that an upsert merges into.
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
    let pks = || requests().map(|r| r.key.partition.as_str()).collect::<Vec<_>>();
    let rks = || requests().map(|r| r.key.row.as_str()).collect::<Vec<_>>();
    let texts = &statements.each;
    let only = requests().next().filter(|_| statements.is_distributed);
    let address = |text| match only {
        Some(only) => {
            sqlx::query(text).bind(only.bucket()).bind(pks()).bind(rks()).bind(only.table_id.table_no)
        }
        None => {
            let buckets: Vec<i64> = requests().map(GuardedWrite::bucket).collect();
            let tables: Vec<i64> = requests().map(|r| r.table_id.table_no).collect();
            sqlx::query(text).bind(buckets).bind(pks()).bind(rks()).bind(tables)
        }
    };
    let versions = || requests().map(|r| r.now.raw()).collect::<Vec<i64>>();
    let properties = || requests().map(|r| JsonText(r.properties())).collect::<Vec<_>>();
    let wanted = || requests().map(GuardedWrite::wanted).collect::<Vec<_>>();
    let merging = || requests().filter_map(GuardedWrite::merging);
    let annotations = || merging().map(|m| m.annotations.as_str()).collect::<Vec<_>>();
    let max_members_each = || merging().map(|m| m.max_members).collect::<Vec<_>>();
    let put = |text| address(text).bind(versions()).bind(properties());
    match round.first().map(|job| &job.request.change) {
        Some(GuardedChange::Upsert(_)) => put(texts.upsert),
        Some(GuardedChange::Update(..)) => put(texts.update).bind(wanted()),
        Some(GuardedChange::Merge(..)) => {
            bounded(put(texts.merge).bind(annotations()).bind(max_members_each())).bind(wanted())
        }
        Some(GuardedChange::InsertOrMerge(_)) => {
            bounded(put(texts.insert_or_merge).bind(annotations()).bind(max_members_each()))
        }
        Some(GuardedChange::Delete(_)) => address(texts.delete).bind(wanted()),
        Some(GuardedChange::Insert(_)) | None => put(texts.insert),
    }
}

/// Returns the outcome of each write of a round, in order, from the rows of the statement.
fn versions(round: &[Job<Writes>], rows: &[PgRow]) -> Vec<Result<Option<Ticks>, StatementError>> {
    let mut versions = vec![Ok(None); round.len()];
    for row in rows {
        match index_of(round, row) {
            Ok(Some(at)) => versions[at] = version(row).map(Some),
            // Some writes were committed, but it is unknown which. None of them may be reported as not done.
            Ok(None) => return vec![Err(Fault::Timeout.into()); round.len()],
            Err(error) => {
                broken_row(error);
                return vec![Err(Fault::Timeout.into()); round.len()];
            }
        }
    }
    versions
}

/// Returns the index of the write that a row belongs to.
fn index_of(round: &[Job<Writes>], row: &PgRow) -> Result<Option<usize>, sqlx::Error> {
    Ok(match round.first().map(|job| &job.request.change) {
        Some(GuardedChange::Insert(_)) | None => {
            let modified: i64 = row.try_get("modified")?;
            round.iter().position(|job| job.request.now.raw() == modified)
        }
        Some(GuardedChange::Upsert(_) | GuardedChange::InsertOrMerge(_)) => {
            let address: (i64, &str, &str) = (row.try_get("bucket")?, row.try_get("pk")?, row.try_get("rk")?);
            round.binary_search_by(|job| job.request.address().cmp(&address)).ok()
        }
        Some(GuardedChange::Update(..) | GuardedChange::Merge(..) | GuardedChange::Delete(_)) => {
            let n: i64 = row.try_get("n")?;
            usize::try_from(n - 1).ok().filter(|at| *at < round.len())
        }
    })
}
