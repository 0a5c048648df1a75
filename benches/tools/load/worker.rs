//! One connection and what it asks for.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::ask::{self, Asking};
use crate::entity::{CHANGE_SET, Layout};
use crate::http::Connection;
use crate::measure::Meter;
use crate::options::{Operation, Options};
use crate::request::Writer;

pub type Failure = Box<dyn Error + Send + Sync>;

/// Rows that a delete finds, unless the number of requests is given.
const DELETES: u64 = 20_000;

/// What all connections share.
pub struct Run {
    pub options: Options,
    pub layout: Layout,
    /// Change sets of the filling that were taken.
    pub change_sets: AtomicU64,
    left: AtomicI64,
    created: Instant,
    /// Nanoseconds from `created` to when warming up and measuring started.
    warm_up_started: AtomicU64,
    started: AtomicU64,
}

impl Run {
    pub fn new(options: Options) -> Result<Self, String> {
        if options.connections == 0 || options.entities == 0 {
            return Err("at least one connection and one entity are needed".into());
        }
        Ok(Self {
            layout: Layout::new(options.entities, options.partitions),
            change_sets: AtomicU64::new(0),
            left: AtomicI64::new(options.requests.map_or(i64::MAX, |n| i64::try_from(n).unwrap_or(i64::MAX))),
            created: Instant::now(),
            warm_up_started: AtomicU64::new(0),
            started: AtomicU64::new(0),
            options,
        })
    }

    fn since_created(&self) -> u64 {
        u64::try_from(self.created.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    pub fn warm_up_starts(&self) {
        self.warm_up_started.store(self.since_created(), Ordering::Relaxed);
    }

    pub fn clock_starts(&self) {
        self.started.store(self.since_created(), Ordering::Relaxed);
    }

    fn since(&self, start: &AtomicU64) -> Duration {
        Duration::from_nanos(self.since_created() - start.load(Ordering::Relaxed))
    }

    /// Time since measuring started.
    pub fn elapsed(&self) -> Duration {
        self.since(&self.started)
    }

    /// Whether one more request is to be measured.
    fn goes_on(&self) -> bool {
        match (self.options.operation, self.options.requests) {
            (Operation::Fill, _) => true,
            (_, Some(_)) => self.left.fetch_sub(1, Ordering::Relaxed) > 0,
            (Operation::Delete, None) => true,
            (_, None) => self.elapsed().as_secs_f64() < self.options.seconds,
        }
    }
}

pub struct Worker {
    run: Arc<Run>,
    connection: Connection,
    writer: Writer,
    asking: Asking,
    meter: Meter,
}

impl Worker {
    pub async fn connect(run: Arc<Run>, number: usize) -> Result<Self, Failure> {
        let writer = Writer::new(&run.options)?;
        Ok(Self {
            connection: Connection::open(writer.host()).await?,
            asking: Asking::new(Arc::clone(&run), number as u64, writer.address()),
            run,
            writer,
            meter: Meter::default(),
        })
    }

    pub async fn create_table(&mut self) -> Result<(), Failure> {
        let name = self.run.options.table.clone();
        self.asking.create_table(&name);
        self.must().await
    }

    pub async fn fill(&mut self) -> Result<(), Failure> {
        while self.asking.next_of_filling() {
            self.must().await?;
        }
        Ok(())
    }

    /// What an operation needs to be there or to be known.
    pub async fn prepare(&mut self) -> Result<(), Failure> {
        match self.run.options.operation {
            Operation::ReplaceMatch => {
                while self.asking.next_to_know() {
                    self.must().await?;
                }
            }
            Operation::Delete => {
                let all = self.run.options.requests.unwrap_or(DELETES);
                let sets = all.div_ceil(self.run.options.connections as u64 * CHANGE_SET);
                for _ in 0..sets {
                    self.asking.insert_doomed();
                    self.must().await?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    pub async fn warm_up(&mut self) {
        if matches!(self.run.options.operation, Operation::Delete | Operation::Fill | Operation::CreateTable)
        {
            return;
        }
        let mut errors = Meter::default();
        while self.run.since(&self.run.warm_up_started).as_secs_f64() < self.run.options.warm_up
            && self.asking.next(self.run.options.operation)
        {
            if let Err(what) = self.ask().await {
                errors.failed(what);
                break;
            }
        }
        self.meter = errors;
    }

    pub async fn work(mut self) -> Meter {
        while self.run.goes_on() {
            let asked = Instant::now();
            if !self.asking.next(self.run.options.operation) {
                break;
            }
            match self.ask().await {
                Ok(()) => self.meter.took(asked.elapsed()),
                Err(what) => {
                    let lost = what.starts_with("connection");
                    self.meter.failed(what);
                    if lost {
                        break;
                    }
                }
            }
        }
        self.meter
    }

    async fn must(&mut self) -> Result<(), Failure> {
        self.ask().await.map_err(|what| format!("preparing: {what}").into())
    }

    /// Sends what was made up, and follows a continuation to its end.
    async fn ask(&mut self) -> Result<(), String> {
        loop {
            let request = self.writer.write(&self.asking.ask());
            let answer = self.connection.exchange(request).await.map_err(|e| format!("connection: {e}"))?;
            match self.asking.judge(&answer)? {
                ask::Verdict::Done => return Ok(()),
                ask::Verdict::GoOn => {}
            }
        }
    }
}
