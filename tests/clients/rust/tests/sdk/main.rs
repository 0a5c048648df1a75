//! Drives the retired Azure Tables SDK for Rust against a real Rowhouse server.

mod access;
mod entities;
mod queries;
mod server;
mod tables;
mod transactions;
