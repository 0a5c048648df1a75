//! The progress of a transfer for people and programs.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _, stderr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{HumanCount, MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;
use serde_json::json;

use crate::contract::Counts;

/// Pause between two lines of [`ProgressForm::Plain`] and [`ProgressForm::Json`].
const LINE_PAUSE: Duration = Duration::from_secs(10);
/// The interval at which bars are redrawn and the end is checked.
const TICK: Duration = Duration::from_millis(100);
/// Maximum number of bars. Further tables count only in the total.
const MAX_BARS: usize = 12;

/// How progress is shown, on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ProgressForm {
    /// Bars on a terminal, lines elsewhere
    Auto,
    /// A bar for each table
    Bar,
    /// A line every ten seconds
    Plain,
    /// A line of JSON every ten seconds
    Json,
    /// Nothing
    Off,
}

#[derive(Debug, Default)]
struct TableProgress {
    counts: Counts,
    /// The expected number of entities, if known.
    expected: Option<u64>,
    bar: Option<ProgressBar>,
}

struct ProgressState {
    verb: &'static str,
    form: ProgressForm,
    begun: Instant,
    tables: Mutex<BTreeMap<String, TableProgress>>,
    bars: MultiProgress,
    /// The bar of all tables, if there are several.
    all: Mutex<Option<ProgressBar>>,
    throttled: AtomicU64,
    is_over: AtomicBool,
}

/// The progress of a transfer, displayed by its own thread until it is dropped.
pub struct Progress {
    shared: Arc<ProgressState>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    /// Starts to display progress. `verb` is the action on entities, such as `copied`.
    pub fn start(form: ProgressForm, verb: &'static str) -> Self {
        let form = match form {
            ProgressForm::Auto if stderr().is_terminal() => ProgressForm::Bar,
            ProgressForm::Auto => ProgressForm::Plain,
            given => given,
        };
        let shared = Arc::new(ProgressState {
            verb,
            form,
            begun: Instant::now(),
            tables: Mutex::default(),
            all: Mutex::default(),
            bars: MultiProgress::with_draw_target(ProgressDrawTarget::stderr()),
            throttled: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        });
        let own = shared.clone();
        let thread = (form != ProgressForm::Off).then(|| std::thread::spawn(move || own.show()));
        Self { shared, thread }
    }

    pub(crate) fn add(&self, table: &str, counts: Counts) {
        let mut tables = self.shared.tables.lock();
        let state = match tables.get_mut(table) {
            Some(state) => state,
            None => tables.entry(table.to_owned()).or_default(),
        };
        state.counts += counts;
    }

    pub(crate) fn expect(&self, table: &str, entities: Option<u64>) {
        let mut tables = self.shared.tables.lock();
        tables.entry(table.to_owned()).or_default().expected = entities;
    }

    pub(crate) fn tables_without_expected(&self) -> Vec<String> {
        let tables = self.shared.tables.lock();
        tables.iter().filter(|(_, state)| state.expected.is_none()).map(|(name, _)| name.clone()).collect()
    }

    pub(crate) fn throttled(&self, answers: u64) {
        self.shared.throttled.store(answers, Ordering::Relaxed);
    }

    pub fn elapsed(&self) -> Duration {
        self.shared.begun.elapsed()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

impl ProgressState {
    fn show(&self) {
        let mut next_line = self.begun + LINE_PAUSE;
        while !self.is_over.load(Ordering::Relaxed) {
            std::thread::park_timeout(TICK);
            match self.form {
                ProgressForm::Bar | ProgressForm::Auto => self.draw(),
                ProgressForm::Off => {}
                ProgressForm::Plain | ProgressForm::Json => {
                    if Instant::now() >= next_line {
                        next_line += LINE_PAUSE;
                        self.print();
                    }
                }
            }
        }
        let _ = self.bars.clear();
    }

    fn draw(&self) {
        let mut tables = self.tables.lock();
        let throttled = self.throttled.load(Ordering::Relaxed);
        for (name, state) in tables.iter_mut().take(MAX_BARS) {
            let bar = state.bar.get_or_insert_with(|| self.bars.add(bar(name)));
            show(bar, state.counts, state.expected, throttled);
        }
        if tables.len() > 1 {
            let sum = tables.values().map(|state| state.counts).sum();
            let expected = tables.values().map(|state| state.expected).sum();
            let name = format!("all {} tables", tables.len());
            let mut all = self.all.lock();
            show(all.get_or_insert_with(|| self.bars.add(bar(&name))), sum, expected, throttled);
        }
    }

    fn print(&self) {
        let tables = self.tables.lock();
        let sum: Counts = tables.values().map(|state| state.counts).sum();
        let expected: Option<u64> = tables.values().map(|state| state.expected).sum();
        let done = sum.written + sum.unchanged + sum.rejected;
        let seconds = self.begun.elapsed().as_secs_f64().max(0.001);
        let rate = done as f64 / seconds;
        let left =
            expected.filter(|_| rate > 0.0).map(|all| (all.saturating_sub(done) as f64 / rate).round());
        let throttled = self.throttled.load(Ordering::Relaxed);
        let line = if self.form == ProgressForm::Json {
            json!({
                "tables": tables.len(), "entities": done, "rejected": sum.rejected, "throttled": throttled,
                "perSecond": rate.round(), "seconds": seconds.round(), "secondsLeft": left,
            })
            .to_string()
        } else {
            let left = left.map_or(String::new(), |left| format!(", about {left} s left"));
            format!(
                "rowhouse: {done} entities of {} tables {}, {rate:.0}/s, {} rejected, {throttled} throttled{left}",
                tables.len(),
                self.verb,
                sum.rejected,
            )
        };
        // A transfer must not fail because its progress cannot be shown.
        let _ = writeln!(stderr().lock(), "{line}");
    }
}

const UNKNOWN_LENGTH_STYLE: &str = "{prefix:24} {spinner} {human_pos} {rate}, {msg}";
const KNOWN_LENGTH_STYLE: &str = "{prefix:24} {bar:24} {human_pos}/{human_len} {rate}, {msg}, {eta} left";

fn bar(name: &str) -> ProgressBar {
    let bar = ProgressBar::no_length();
    set_style(&bar, UNKNOWN_LENGTH_STYLE);
    bar.with_prefix(name.to_owned())
}

fn show(bar: &ProgressBar, counts: Counts, expected: Option<u64>, throttled: u64) {
    if bar.length() != expected
        && let Some(all) = expected
    {
        bar.set_length(all);
        set_style(bar, KNOWN_LENGTH_STYLE);
    }
    let Counts { written, unchanged, rejected } = counts;
    bar.set_position(written + unchanged + rejected);
    bar.set_message(format!("{rejected} rejected, {throttled} throttled"));
}

fn set_style(bar: &ProgressBar, template: &str) {
    // The templates are constant, so they are valid.
    if let Ok(style) = ProgressStyle::with_template(template) {
        let rate = |state: &indicatif::ProgressState, text: &mut dyn std::fmt::Write| {
            // A rate that cannot be written is omitted.
            let _ = write!(text, "{}/s", HumanCount(state.per_sec().round() as u64));
        };
        bar.set_style(style.with_key("rate", rate));
    }
}
