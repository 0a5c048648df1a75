//! Point reads that share a statement.

use std::ops::ControlFlow;

use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::observe::metrics::{self, METRICS};
use crate::postgres::batches::lane::{Job, LaneQueue, Shared};
use crate::postgres::connections::lease::{Lease, Statement};
use crate::postgres::connections::sessions::LockWait;
use crate::postgres::fault::{Effect, StatementError};
use crate::postgres::rows::found;
use crate::postgres::state::table_ids::TableId;
use crate::postgres::statements;
use crate::postgres::statements::EntityStatements;
use crate::protocol::model::{Key, Stored};

/// Maximum reads of one statement.
const MAX_ROUND: usize = 128;

pub(crate) struct Lookup {
    pub table_id: TableId,
    pub key: Key,
}

impl Lookup {
    fn table_and_bucket(&self) -> (i64, i64) {
        (self.table_id.table_no, self.table_id.bucket(&self.key.partition))
    }
}

pub(crate) enum FoundEntity {
    NoTable,
    Absent,
    Present(Stored),
}

impl FoundEntity {
    /// Returns the entity of a statement's row. Without a row, the table is gone.
    pub(crate) fn of(row: Option<&PgRow>, key: Key) -> Result<Self, StatementError> {
        let Some(row) = row else { return Ok(FoundEntity::NoTable) };
        Ok(found(row, key)?.map_or(FoundEntity::Absent, FoundEntity::Present))
    }

    /// Returns the entity, if there is one. The outer `None` means that the table is gone.
    pub(crate) fn in_table(self) -> Option<Option<Stored>> {
        match self {
            FoundEntity::NoTable => None,
            FoundEntity::Absent => Some(None),
            FoundEntity::Present(entity) => Some(Some(entity)),
        }
    }
}

/// The lane of point reads.
pub(crate) struct Reads;

impl Shared for Reads {
    type Request = Lookup;
    type Reply = FoundEntity;
    const EFFECT: Effect = Effect::Undone;
    const LOCK_WAIT: Option<LockWait> = None;
    const TURNS: usize = 1;

    fn metrics() -> (&'static metrics::PoolMetrics, &'static metrics::Rounds) {
        (&METRICS.read_lanes, &METRICS.read_rounds)
    }

    fn bucket(request: &Lookup) -> i64 {
        request.table_and_bucket().1
    }

    fn round(waiting: &mut LaneQueue<Self>, statements: &EntityStatements) -> Vec<Job<Self>> {
        let Some(first) = waiting.front().map(|job| job.request.table_and_bucket()) else {
            return Vec::new();
        };
        if !statements.is_distributed {
            return waiting.drain(..waiting.len().min(MAX_ROUND)).collect();
        }
        let mut round = Vec::new();
        let mut later = LaneQueue::new();
        for job in waiting.drain(..) {
            if round.len() < MAX_ROUND && job.request.table_and_bucket() == first {
                round.push(job);
            } else {
                later.push_back(job);
            }
        }
        *waiting = later;
        round
    }

    async fn run(mut lease: Lease, mut round: Vec<Job<Self>>) {
        match round.pop() {
            Some(only) if round.is_empty() => {
                let row = read(&mut lease, &only.request).await;
                only.answer_with(|lookup| FoundEntity::of(row?.as_ref(), lookup.key));
            }
            last => {
                round.extend(last);
                read_each(&mut lease, round).await;
            }
        }
    }
}

/// Reads the row of [`FoundEntity::of`].
pub(crate) async fn read(lease: &mut Lease, lookup: &Lookup) -> Result<Option<PgRow>, StatementError> {
    let Lookup { table_id, key } = lookup;
    let query = sqlx::query(statements::READ)
        .bind(table_id.bucket(&key.partition))
        .bind(&key.partition)
        .bind(&key.row)
        .bind(table_id.table_no);
    lease.row(query, Effect::Undone).await
}

/// The statement of a round, for any buckets or for the bucket of the first read.
fn statement(round: &[Job<Reads>], statements: &EntityStatements) -> Statement<'static> {
    let pks: Vec<&str> = round.iter().map(|j| j.request.key.partition.as_str()).collect();
    let rks: Vec<&str> = round.iter().map(|j| j.request.key.row.as_str()).collect();
    let ids = round.iter().map(|j| j.request.table_and_bucket());
    let query = sqlx::query(statements.read_each);
    match round.first().filter(|_| statements.is_distributed) {
        Some(first) => {
            let (table_no, bucket) = first.request.table_and_bucket();
            query.bind(bucket).bind(pks).bind(rks).bind(table_no)
        }
        None => {
            let (tables, buckets): (Vec<i64>, Vec<i64>) = ids.unzip();
            query.bind(buckets).bind(pks).bind(rks).bind(tables)
        }
    }
}

/// Answers each read as its row arrives, and reads without a row at the end.
async fn read_each(lease: &mut Lease, round: Vec<Job<Reads>>) {
    let query = statement(&round, lease.statements());
    let mut open: Vec<Option<Job<Reads>>> = round.into_iter().map(Some).collect();
    let outcome = lease
        .stream(query, &mut |row| {
            let place = usize::try_from(row.try_get::<i64, _>("n")?).unwrap_or(0);
            let job = place.checked_sub(1).and_then(|at| open.get_mut(at)).and_then(Option::take);
            if let Some(job) = job {
                job.answer_with(|lookup| FoundEntity::of(Some(row), lookup.key));
            }
            Ok(ControlFlow::Continue(()))
        })
        .await;
    open.into_iter().flatten().for_each(|job| job.answer(outcome.map(|_| FoundEntity::NoTable)));
}
