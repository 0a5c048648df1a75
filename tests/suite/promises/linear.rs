//! A linearizability checker after Wing and Gong, with the memory of visited
//! configurations that Lowe added and Porcupine made popular.
//!
//! A history is linearizable if each call can be given one moment between its
//! start and its answer so that a single-threaded object would have answered
//! the same. Such an object is a [`Model`]. A call whose answer never came has no
//! end: it may have happened at any moment after its start, or not at all.

use std::collections::HashSet;
use std::hash::Hash;

/// An object that does one thing at a time.
pub trait Model {
    type State: Clone + Eq + Hash;
    type Call;
    /// Names a state that comes once and, when it is left, never again.
    type Mark: PartialEq;

    /// The state afterwards if the call could have gone this way, its answer
    /// included.
    fn step(state: &Self::State, call: &Self::Call) -> Option<Self::State>;

    /// The name of a state, if it has one.
    fn mark(state: &Self::State) -> Option<Self::Mark>;

    /// The state without which the call cannot have gone this way.
    fn needs(call: &Self::Call) -> Option<Self::Mark>;
}

/// A call with the moments between which it happened.
#[derive(Debug, Clone)]
pub struct Span<C> {
    pub start: u64,
    /// `None` if the answer never came.
    pub end: Option<u64>,
    pub call: C,
}

/// Which calls have been given their moment.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Done(Vec<u64>);

impl Done {
    fn has(&self, at: usize) -> bool {
        self.0[at / 64] >> (at % 64) & 1 == 1
    }

    fn with(&self, at: usize) -> Self {
        let mut done = self.clone();
        done.0[at / 64] |= 1 << (at % 64);
        done
    }
}

/// A configuration on the way, and the next call to try from it.
struct Frame<S> {
    done: Done,
    state: S,
    next: usize,
}

/// Configurations to visit before giving up: more is a history too wide to judge.
const MAX_CONFIGURATIONS: usize = 3_000_000;

/// Whether the history could have come from one object that began in `state`.
/// The error is the longest order that could be found.
pub fn check<M: Model>(state: M::State, history: &[Span<M::Call>]) -> Result<(), Vec<usize>> {
    let mut order: Vec<usize> = (0..history.len()).collect();
    order.sort_by_key(|at| history[*at].start);
    let spans: Vec<&Span<M::Call>> = order.iter().map(|at| &history[*at]).collect();
    let needs: Vec<Option<M::Mark>> = spans.iter().map(|span| M::needs(&span.call)).collect();
    let mut seen = HashSet::new();
    let mut path: Vec<usize> = Vec::new();
    let mut longest = Vec::new();
    let mut stack = vec![Frame { done: Done(vec![0; spans.len() / 64 + 1]), state, next: 0 }];
    while let Some(frame) = stack.last_mut() {
        // Whatever starts after the first answer that is still to come has to wait.
        let limit = (0..spans.len()).filter(|at| !frame.done.has(*at)).filter_map(|at| spans[at].end).min();
        let Some(limit) = limit else { return Ok(()) };
        let mut deeper = None;
        let may_go = |at: usize, frame: &Frame<M::State>| {
            if frame.done.has(at) { None } else { M::step(&frame.state, &spans[at].call) }
        };
        let ready = |at: usize| at < spans.len() && spans[at].start <= limit;
        // A call that changes nothing is best done as early as it can be.
        let observer = (0..).take_while(|at| ready(*at)).find(|at| {
            spans[*at].end.is_some() && may_go(*at, frame).is_some_and(|state| state == frame.state)
        });
        if let (Some(at), 0) = (observer, frame.next) {
            frame.next = spans.len();
            let done = frame.done.with(at);
            deeper = Some((at, Frame { done, state: frame.state.clone(), next: 0 }));
        }
        while deeper.is_none() && ready(frame.next) {
            let at = frame.next;
            frame.next += 1;
            let Some(state) = may_go(at, frame) else { continue };
            let done = frame.done.with(at);
            let (left, reached) = (M::mark(&frame.state), M::mark(&state));
            let is_needed = |mark: &M::Mark| {
                (0..spans.len()).any(|other| {
                    !done.has(other) && spans[other].end.is_some() && needs[other].as_ref() == Some(mark)
                })
            };
            if left != reached && left.as_ref().is_some_and(is_needed) {
                continue;
            }
            if seen.insert((done.clone(), state.clone())) {
                deeper = Some((at, Frame { done, state, next: 0 }));
            }
        }
        assert!(seen.len() < MAX_CONFIGURATIONS, "the history is too wide to judge");
        match deeper {
            Some((at, frame)) => {
                path.push(order[at]);
                stack.push(frame);
                if path.len() > longest.len() {
                    longest.clone_from(&path);
                }
            }
            None => {
                stack.pop();
                path.pop();
            }
        }
    }
    Err(longest)
}

/// One value that is set and read. No value is set twice.
pub struct Register;

/// What is done to a register, and what came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    Set(u64),
    Found(u64),
    /// Sets the second value if the first is there.
    Swapped(u64, u64),
}

impl Model for Register {
    type State = u64;
    type Call = Access;
    type Mark = u64;

    fn step(state: &u64, call: &Access) -> Option<u64> {
        match call {
            Access::Set(value) => Some(*value),
            Access::Found(value) => (state == value).then_some(*value),
            Access::Swapped(from, to) => (state == from).then_some(*to),
        }
    }

    fn mark(state: &u64) -> Option<u64> {
        Some(*state)
    }

    fn needs(call: &Access) -> Option<u64> {
        match call {
            Access::Set(_) => None,
            Access::Found(value) | Access::Swapped(value, _) => Some(*value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Access::{Found, Set, Swapped};

    fn span(start: u64, end: u64, call: Access) -> Span<Access> {
        Span { start, end: Some(end), call }
    }

    fn unanswered(start: u64, call: Access) -> Span<Access> {
        Span { start, end: None, call }
    }

    fn is_fine(history: &[Span<Access>]) -> bool {
        check::<Register>(0, history).is_ok()
    }

    #[test]
    fn a_sequence_is_fine() {
        assert!(is_fine(&[]));
        assert!(is_fine(&[
            span(0, 1, Set(1)),
            span(2, 3, Found(1)),
            span(4, 5, Set(2)),
            span(6, 7, Found(2))
        ]));
    }

    #[test]
    fn a_stale_read_is_refused() {
        assert!(!is_fine(&[span(0, 1, Set(1)), span(2, 3, Set(2)), span(4, 5, Found(1))]));
        assert!(!is_fine(&[span(0, 1, Set(1)), span(2, 3, Found(0))]));
    }

    #[test]
    fn a_read_beside_a_write_may_find_either_but_not_go_back() {
        let write = || span(0, 10, Set(1));
        assert!(is_fine(&[write(), span(1, 2, Found(0)), span(3, 4, Found(1))]));
        assert!(!is_fine(&[write(), span(1, 2, Found(1)), span(3, 4, Found(0))]));
    }

    #[test]
    fn a_lost_update_is_refused() {
        assert!(!is_fine(&[span(0, 5, Swapped(0, 1)), span(1, 6, Swapped(0, 2)), span(7, 8, Found(2))]));
        assert!(is_fine(&[span(0, 5, Swapped(0, 1)), span(1, 6, Swapped(1, 2)), span(7, 8, Found(2))]));
    }

    #[test]
    fn a_value_from_nowhere_is_refused() {
        assert!(!is_fine(&[span(0, 1, Set(1)), span(0, 9, Found(7))]));
    }

    #[test]
    fn a_call_without_an_answer_happens_late_or_never_but_only_once() {
        let lost = || unanswered(0, Swapped(0, 1));
        assert!(is_fine(&[lost(), span(1, 2, Found(0)), span(30, 40, Found(0))]));
        assert!(is_fine(&[lost(), span(1, 2, Found(0)), span(30, 40, Found(1))]));
        assert!(!is_fine(&[lost(), span(1, 2, Found(1)), span(30, 40, Found(0))]));
        assert!(!is_fine(&[lost(), span(1, 2, Found(1)), span(3, 4, Set(9)), span(30, 40, Found(1))]));
        // Not before it was asked for.
        assert!(!is_fine(&[unanswered(5, Set(1)), span(1, 2, Found(1))]));
    }

    #[test]
    fn the_order_is_searched_and_not_guessed() {
        // Three writes at once: only one order explains the three reads.
        let writes = [1, 2, 3].map(|n| span(0, 10, Set(n)));
        let reads = |order: [u64; 3]| {
            let mut history = writes.to_vec();
            history
                .extend(order.iter().zip([(1, 2), (3, 4), (5, 6)]).map(|(n, (s, e))| span(s, e, Found(*n))));
            history
        };
        assert!(is_fine(&reads([3, 1, 2])));
        assert!(is_fine(&reads([2, 2, 3])));
        assert!(!is_fine(&reads([3, 1, 3])));
    }
}
