//! Loads a server with requests of one kind and says what they took.
//!
//! ```text
//! cargo run --profile dist --example load -- --create --fill --entities 10000 --partitions 10 read --connections 16
//! ```
//!
//! It costs as little of the processors as it can, since it shares them with
//! the server: plain sockets, requests written by hand, one thread. Every request
//! is signed afresh. It prints one line of JSON; the exit status is 1 if any
//! answer was not the expected one.

mod ask;
mod entity;
mod http;
mod measure;
mod options;
mod process;
mod report;
mod request;
mod worker;

use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser as _;

use measure::{Meter, Sample};
use options::Options;
use process::Watch;
use worker::{Failure, Run, Worker};

fn main() -> ExitCode {
    let options = Options::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(run(options)));
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("load: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether every answer was the expected one.
async fn run(options: Options) -> Result<bool, Failure> {
    let run = Arc::new(Run::new(options)?);
    let mut workers = Vec::with_capacity(run.options.connections);
    for number in 0..run.options.connections {
        workers.push(Worker::connect(Arc::clone(&run), number).await?);
    }
    if run.options.create
        && let Some(first) = workers.first_mut()
    {
        first.create_table().await?;
    }
    if run.options.fill {
        workers = each(workers, |mut worker| async move {
            worker.fill().await?;
            Ok(worker)
        })
        .await?;
    }
    workers = each(workers, |mut worker| async move {
        worker.prepare().await?;
        Ok(worker)
    })
    .await?;
    run.warm_up_starts();
    workers = each(workers, |mut worker| async move {
        worker.warm_up().await;
        Ok(worker)
    })
    .await?;

    let watch = Watch::start(run.options.server_pid, run.options.postgres_pid.clone());
    run.clock_starts();
    let meters = each(workers, |worker| async move { Ok(worker.work().await) }).await?;
    let seconds = run.elapsed().as_secs_f64();
    let used = watch.stop();
    let sample = Sample::of(meters.into_iter().collect::<Meter>(), seconds);
    println!("{}", report::line(&run.options, &sample, &used));
    Ok(sample.errors.is_empty() && sample.requests > 0)
}

/// Runs a step of all workers side by side.
async fn each<T, F>(workers: Vec<Worker>, step: impl Fn(Worker) -> F) -> Result<Vec<T>, Failure>
where
    T: Send + 'static,
    F: Future<Output = Result<T, Failure>> + Send + 'static,
{
    let tasks: Vec<_> = workers.into_iter().map(|worker| tokio::spawn(step(worker))).collect();
    let mut done = Vec::with_capacity(tasks.len());
    for task in tasks {
        done.push(task.await??);
    }
    Ok(done)
}
