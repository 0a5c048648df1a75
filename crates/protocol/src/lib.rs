//! Interprets requests of the Table protocol, as pure functions over plain data: no I/O, no clock.

#![warn(unreachable_pub)]
#![allow(rustdoc::private_intra_doc_links, reason = "developers of this repository read the documentation")]

/// Defines an enum whose variants have names, and lists the variants in `ALL`.
macro_rules! named_enum {
    ($(#[$about:meta])* $name:ident, $text:ident { $($(#[$of_variant:meta])* $variant:ident => $value:literal,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$of_variant])* $variant,)*
        }

        impl $name {
            /// All variants, in the order of their discriminants.
            pub const ALL: [Self; Self::COUNT] = [$(Self::$variant,)*];
            pub const COUNT: usize = [$(Self::$variant,)*].len();

            /// Returns the name.
            pub const fn $text(self) -> &'static str {
                match self {
                    $(Self::$variant => $value,)*
                }
            }
        }
    };
}

pub mod auth;
pub mod codec;
pub mod error;
pub mod model;
pub mod odata;
pub mod plan;
pub mod request;
