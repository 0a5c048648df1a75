//! A clock that jumps, for servers that are started with it: libfaketime, which Debian's package
//! `faketime` has.

use std::path::PathBuf;

/// Where the library is installed.
const LIBRARY: &str = "faketime/libfaketime.so.1";

/// The system time of a server, which a test moves.
pub struct JumpingClock {
    library: String,
    /// Holds the offset in seconds.
    file: PathBuf,
}

impl JumpingClock {
    /// A clock that is right. `None` where the library is missing, unless CI runs the tests.
    pub fn new(folder: &std::path::Path) -> Option<Self> {
        let folders = std::fs::read_dir("/usr/lib").expect("libraries").flatten().map(|entry| entry.path());
        let found = folders.map(|folder| folder.join(LIBRARY)).find(|library| library.exists());
        let Some(library) = found else {
            assert!(std::env::var("CI").is_err(), "CI needs libfaketime");
            println!("there is no libfaketime here: clocks that jump are not tested");
            return None;
        };
        let clock = Self { library: library.display().to_string(), file: folder.join("clock") };
        clock.set(0);
        Some(clock)
    }

    /// The variables of the process that has this clock.
    pub fn variables(&self) -> [(&str, &str); 4] {
        [
            ("LD_PRELOAD", &self.library),
            ("FAKETIME_TIMESTAMP_FILE", self.file.to_str().expect("a path")),
            ("FAKETIME_NO_CACHE", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ]
    }

    /// Sets it to so many seconds ahead of the machine's.
    pub fn set(&self, seconds: i64) {
        std::fs::write(&self.file, format!("{seconds:+}")).expect("the offset is written");
    }
}
