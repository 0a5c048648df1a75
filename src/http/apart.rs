//! Threads that serve keep off one another's processor (Linux).
//!
//! Where other programs are busy too, the scheduler may have two of them on one
//! processor and change between them at its tick alone: all clients of one wait for
//! milliseconds, in turns. It evens out how much processors have to do, which this does
//! not change. So a thread that had to wait while another of ours was on its processor
//! goes to a different one, and may be moved from there like any other.

use std::cell::Cell;
use std::fs;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::{sched_getaffinity, sched_getcpu, sched_setaffinity};

/// Without a request for that long, a thread may have been kept waiting: less than a
/// tick, of which there are 100 to 1000 a second.
const STALL: Duration = Duration::from_millis(2);
/// From then on there was nothing to do.
const IDLE: Duration = Duration::from_millis(50);
/// How often a thread that has requests looks how long it has waited for processors.
const LOOK: Duration = Duration::from_millis(10);
/// How long ago the other one may have been there.
const RECENT: Duration = Duration::from_micros(2500);
/// How often a thread tells where it is.
const PERIOD: Duration = Duration::from_micros(500);
/// Threads that are told apart. Where there are more, two may share a seat, and are
/// not kept apart.
const SEATS: usize = 64;
/// Bits of a note that are the processor's.
const PROCESSOR: u32 = 16;

/// Where each thread was last, and when, in microseconds since the start: both in one
/// number, so that they belong together.
static NOTES: [AtomicU64; SEATS] = [const { AtomicU64::new(0) }; SEATS];
static TAKEN: AtomicUsize = AtomicUsize::new(0);
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

thread_local! {
    static HERE: Cell<Option<Watch>> = const { Cell::new(None) };
}

/// What a thread knows of itself.
#[derive(Clone, Copy)]
struct Watch {
    seat: usize,
    /// The last request.
    last: Instant,
    /// When it last noted where it is.
    noted: Instant,
    /// When it last looked how long it had waited for processors, and what it saw.
    looked: Option<(Instant, Duration)>,
}

/// To be called for each request.
pub fn arrived() {
    let now = Instant::now();
    HERE.with(|here| {
        let mut watch = here.get().unwrap_or_else(|| Watch::new(now));
        let is_crowded = watch.is_stall(now) && is_shared(watch.seat, sched_getcpu(), now);
        let has_waited = (is_crowded || watch.is_to_look(now)) && watch.has_waited(now, waited());
        if is_crowded && has_waited {
            leave(sched_getcpu());
        }
        watch.note(now);
        here.set(Some(watch));
    });
}

impl Watch {
    fn new(now: Instant) -> Self {
        let seat = TAKEN.fetch_add(1, Ordering::Relaxed) % SEATS;
        Self { seat, last: now, noted: now, looked: None }
    }

    fn is_stall(&self, now: Instant) -> bool {
        (STALL..IDLE).contains(&now.duration_since(self.last))
    }

    fn is_to_look(&self, now: Instant) -> bool {
        self.looked.is_none_or(|(then, _)| now.duration_since(then) >= LOOK)
    }

    /// Whether it was for want of a processor, at least by half, that no request came
    /// since the last one. `waited` is how long the thread has wanted one in all its
    /// life, if the system says so.
    fn has_waited(&mut self, now: Instant, waited: Option<Duration>) -> bool {
        let before = self.looked;
        self.looked = waited.map(|waited| (now, waited));
        let pause = now.duration_since(self.last);
        before.zip(waited).is_some_and(|((then, before), waited)| {
            now.duration_since(then) < IDLE && waited.saturating_sub(before) >= pause / 2
        })
    }

    fn note(&mut self, now: Instant) {
        if now.duration_since(self.noted) >= PERIOD {
            NOTES[self.seat].store(note(sched_getcpu(), now), Ordering::Relaxed);
            self.noted = now;
        }
        self.last = now;
    }
}

fn note(processor: usize, now: Instant) -> u64 {
    let micros = u64::try_from(now.saturating_duration_since(*START).as_micros()).unwrap_or(0);
    (micros + 1) << PROCESSOR | (processor as u64 & ((1 << PROCESSOR) - 1))
}

/// Whether a thread of another seat was on this processor just now.
fn is_shared(own: usize, processor: usize, now: Instant) -> bool {
    let this = note(processor, now);
    let recent = u64::try_from(RECENT.as_micros()).unwrap_or(0);
    NOTES.iter().enumerate().filter(|(seat, _)| *seat != own).any(|(_, other)| {
        let other = other.load(Ordering::Relaxed);
        let ago = (this >> PROCESSOR).saturating_sub(other >> PROCESSOR);
        other != 0 && (this ^ other).trailing_zeros() >= PROCESSOR && ago < recent
    })
}

/// How long this thread has waited for a processor in all its life.
fn waited() -> Option<Duration> {
    let numbers = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    numbers.split(' ').nth(1)?.parse().ok().map(Duration::from_nanos)
}

/// Goes to another processor of those that the thread may be on, if there is one.
fn leave(processor: usize) {
    let Ok(all) = sched_getaffinity(None) else { return };
    let mut others = all;
    others.unset(processor);
    if others.count() > 0 && sched_setaffinity(None, &others).is_ok() {
        // Refused only where none of them is this program's any more.
        let _ = sched_setaffinity(None, &all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_one_only_where_the_thread_wanted_a_processor() {
        let start = Instant::now();
        let mut watch = Watch { seat: 0, last: start, noted: start, looked: None };
        assert!(!watch.is_stall(start + STALL / 2) && !watch.is_stall(start + IDLE));
        assert!(watch.is_stall(start + STALL) && watch.is_to_look(start));
        let lived = |micros| Some(Duration::from_micros(micros));
        assert!(!watch.has_waited(start, lived(70_000)), "nobody knows since when");
        assert!(!watch.is_to_look(start + LOOK / 2) && watch.is_to_look(start + LOOK));
        assert!(!watch.has_waited(start + STALL, lived(70_900)), "it slept as well");
        watch.last = start + STALL;
        assert!(watch.has_waited(start + STALL * 2, lived(71_900)));
        watch.last = start + STALL * 2;
        assert!(!watch.has_waited(start + STALL * 3 + IDLE, lived(199_000)), "in a long time");
        assert!(!watch.has_waited(start + STALL * 4 + IDLE, None));
        assert!(!watch.has_waited(start + STALL * 5 + IDLE, lived(299_000)));
    }

    #[test]
    fn another_thread_on_the_same_processor_is_seen_for_a_moment() {
        let now = *START + Duration::from_secs(1);
        let (own, other) = (SEATS - 1, SEATS - 2);
        NOTES[own].store(note(4000, now), Ordering::Relaxed);
        assert!(!is_shared(own, 4000, now), "it is alone");
        NOTES[other].store(note(4001, now), Ordering::Relaxed);
        assert!(!is_shared(own, 4000, now), "another processor");
        NOTES[other].store(note(4000, now), Ordering::Relaxed);
        assert!(is_shared(own, 4000, now + RECENT / 2));
        assert!(!is_shared(own, 4000, now + RECENT), "it was there");
    }

    #[test]
    fn a_thread_that_leaves_may_come_back() {
        std::thread::spawn(|| {
            let before = sched_getaffinity(None).unwrap();
            let processor = sched_getcpu();
            leave(processor);
            assert_eq!(sched_getaffinity(None).unwrap(), before);
            assert_eq!(waited().is_some(), fs::exists("/proc/thread-self/schedstat").unwrap());
        })
        .join()
        .unwrap();
    }
}
