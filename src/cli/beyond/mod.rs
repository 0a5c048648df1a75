//! `rowhouse expire` and `rowhouse view`.

mod expire;
mod place;
mod view;

pub(crate) use expire::ExpireCommand;
pub(crate) use view::ViewCommand;

pub(crate) use expire::run as expire;
pub(crate) use view::run as view;
