//! Processor time of other processes, from `/proc`.

use std::fs;

/// Seconds of a clock tick: 100 a second on every Linux that there is.
const TICK: f64 = 0.01;

/// Looks at the processes when measuring starts.
pub struct Watch {
    server: Option<u32>,
    postgres: Vec<u32>,
    server_seconds: f64,
    postgres_seconds: f64,
}

/// What the processes used meanwhile.
pub struct Used {
    pub server_seconds: Option<f64>,
    pub postgres_seconds: Option<f64>,
}

impl Watch {
    pub fn start(server: Option<u32>, postgres: Vec<u32>) -> Self {
        Self {
            server,
            server_seconds: server.map_or(0.0, own_seconds),
            postgres_seconds: all_seconds(&postgres),
            postgres,
        }
    }

    pub fn stop(self) -> Used {
        Used {
            server_seconds: self.server.map(|pid| own_seconds(pid) - self.server_seconds),
            postgres_seconds: (!self.postgres.is_empty())
                .then(|| all_seconds(&self.postgres) - self.postgres_seconds),
        }
    }
}

/// Fields of `/proc/PID/stat` from the third on, which follow the name.
fn stat(pid: u32) -> Option<Vec<i64>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    Some(rest.split_whitespace().map(|field| field.parse().unwrap_or(0)).collect())
}

fn sum(fields: &[i64], range: std::ops::Range<usize>) -> f64 {
    fields.get(range).map_or(0.0, |ticks| ticks.iter().sum::<i64>() as f64 * TICK)
}

/// User and system time.
fn own_seconds(pid: u32) -> f64 {
    stat(pid).map_or(0.0, |fields| sum(&fields, 11..13))
}

/// Those of several families.
fn all_seconds(parents: &[u32]) -> f64 {
    parents.iter().copied().map(family_seconds).sum()
}

/// Those of a process, of its children, and of the children that have ended.
fn family_seconds(parent: u32) -> f64 {
    let ended_too = stat(parent).map_or(0.0, |fields| sum(&fields, 11..15));
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let children = pids.filter_map(stat).filter(|fields| fields.get(1) == Some(&i64::from(parent)));
    ended_too + children.map(|fields| sum(&fields, 11..13)).sum::<f64>()
}
