//! Prints the output and errors of commands.

use std::borrow::Cow;
use std::io::{self, ErrorKind, Write as _};
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use crate::transfer::TransferError;

/// The output format.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct OutputForm {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl OutputForm {
    /// Prints the text, or the value on one line with `--json`.
    pub(crate) fn print(self, text: &str, value: &impl Serialize) -> Done {
        let printed = self.printed(text, value)?;
        let mut out = std::io::stdout().lock();
        let written = writeln!(out, "{printed}");
        self::written(written.and_then(|()| out.flush()))
    }

    /// Same as [`print`](Self::print), on standard error, if standard output has the data.
    pub(crate) fn print_beside_data(self, text: &str, value: &impl Serialize) -> Done {
        let printed = self.printed(text, value)?;
        // A failure to write it is not reported.
        let _ = writeln!(std::io::stderr().lock(), "{printed}");
        Ok(())
    }

    fn printed<'t>(self, text: &'t str, value: &impl Serialize) -> Done<Cow<'t, str>> {
        Ok(if self.json { serde_json::to_string(value)?.into() } else { printable(text) })
    }
}

/// Describes a failure to write to standard output. A closed pipe is not a failure.
pub(crate) fn written(result: io::Result<()>) -> Done {
    match result {
        // A reader such as `head` has closed the pipe.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Problem(format!("standard output: {error}"))),
        Ok(()) => Ok(()),
    }
}

/// Prints a line on standard error.
pub(crate) fn note(text: &str) {
    // A failure to write it is not reported.
    let _ = writeln!(std::io::stderr().lock(), "rowhouse: {}", printable(text));
}

pub(crate) fn warn(text: &str) {
    note(&format!("warning: {text}"));
}

/// Escapes control characters except tabs and line feeds, because a terminal would interpret control characters from a
/// peer or a file.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    let is_control = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    if !text.contains(is_control) {
        return text.into();
    }
    let mut printed = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_control(c) { printed.extend(c.escape_default()) } else { printed.push(c) }
    }
    printed.into()
}

/// Aligns the cells of lines in columns, each as wide as its longest cell.
pub(crate) fn aligned<const N: usize>(lines: &[[String; N]]) -> String {
    let width =
        |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or_default();
    let widths: [usize; N] = std::array::from_fn(width);
    let print = |line: &[String; N]| {
        let cells = line.iter().zip(widths).map(|(text, width)| format!("{text:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    lines.iter().map(print).collect::<Vec<_>>().join("\n")
}

/// The reasons why a command failed, one per line.
#[derive(Debug)]
pub(crate) struct Problem(pub String);

impl<E: std::error::Error> From<E> for Problem {
    fn from(error: E) -> Self {
        Problem(error.to_string())
    }
}

pub(crate) type Done<T = ()> = Result<T, Problem>;

/// The reason why a transfer did not succeed, with its exit status. A success has status 0.
#[derive(Debug)]
pub(crate) enum TransferEnd {
    /// 1: the transfer failed, for the reason in the text.
    Failed(String),
    /// 2: the arguments are invalid.
    Usage(String),
    /// 3: some entities were rejected.
    Rejected,
    /// 4: the places differ.
    Differs,
    /// 130: interrupted by a signal. The text explains how to resume.
    Interrupted(String),
}

impl TransferEnd {
    pub(crate) fn report(self) -> (ExitCode, Option<String>) {
        match self {
            TransferEnd::Failed(text) => (ExitCode::from(1), Some(text)),
            TransferEnd::Usage(text) => (ExitCode::from(2), Some(text)),
            TransferEnd::Rejected => (ExitCode::from(3), None),
            TransferEnd::Differs => (ExitCode::from(4), None),
            TransferEnd::Interrupted(text) => (ExitCode::from(130), Some(text)),
        }
    }
}

impl From<TransferError> for TransferEnd {
    fn from(error: TransferError) -> Self {
        match error {
            TransferError::Usage(text) => TransferEnd::Usage(text),
            TransferError::Interrupted => TransferEnd::Interrupted("interrupted".into()),
            failure => TransferEnd::Failed(failure.to_string()),
        }
    }
}

impl From<Problem> for TransferEnd {
    fn from(Problem(text): Problem) -> Self {
        TransferEnd::Failed(text)
    }
}

impl From<std::io::Error> for TransferEnd {
    fn from(error: std::io::Error) -> Self {
        TransferEnd::Failed(error.to_string())
    }
}

/// Returns a future that resolves on SIGINT, SIGTERM or SIGHUP. These signals no longer end the program.
pub(crate) fn interruption() -> std::io::Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = if ignores_hangup() { None } else { Some(signal(SignalKind::hangup())?) };
    Ok(async move {
        let hung_up = async {
            match &mut hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hung_up => {}
        }
    })
}

/// Returns whether the program was started with SIGHUP ignored, as by `nohup`. Linux only.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

pub(crate) fn block_on<T>(work: impl Future<Output = Done<T>>) -> Done<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_longest_text() {
        let lines = [["a", "bb", ""], ["ééé", "b", "c"]].map(|line| line.map(str::to_owned));
        assert_eq!(aligned(&lines), "a    bb\nééé  b   c");
    }

    #[test]
    fn a_terminal_obeys_nothing_that_is_printed() {
        assert_eq!(printable("a\tb\nc é 😀"), "a\tb\nc é 😀");
        assert_eq!(printable("\u{1b}[2J\r\u{9b}x\u{7f}"), "\\u{1b}[2J\\r\\u{9b}x\\u{7f}");
    }
}
