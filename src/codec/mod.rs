//! Entities to bytes and back. Knows neither SQL nor HTTP.

pub mod stored;
