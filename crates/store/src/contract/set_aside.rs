//! What is left alone for a while after it failed, so that it delays nothing else.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long something is left alone.
const PAUSE: Duration = Duration::from_secs(60);
/// Maximum that is left alone at a time.
const MAX_SET_ASIDE: usize = 1000;

/// Tables or indexes, by their numbers, and until when each is left alone.
#[derive(Debug, Default)]
pub struct SetAside(BTreeMap<i64, Instant>);

impl SetAside {
    /// Leaves one alone for a minute; `false` if there is no room.
    pub fn add(&mut self, number: i64) -> bool {
        let has_room = self.0.len() < MAX_SET_ASIDE;
        if has_room {
            self.0.insert(number, Instant::now() + PAUSE);
        }
        has_room
    }

    /// Those that are left alone now.
    pub fn current(&mut self) -> Vec<i64> {
        self.0.retain(|_, until| *until > Instant::now());
        self.0.keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_left_alone_for_its_time_and_there_is_a_limit() {
        let mut set_aside = SetAside::default();
        assert!(set_aside.add(7));
        assert_eq!(set_aside.current(), [7]);
        set_aside.0.insert(7, Instant::now());
        assert!(set_aside.current().is_empty());
        let added = (0..=MAX_SET_ASIDE as i64).filter(|number| set_aside.add(*number));
        assert_eq!(added.count(), MAX_SET_ASIDE);
    }
}
