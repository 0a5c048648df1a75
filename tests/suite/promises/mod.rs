//! What users stake their data on: nothing acknowledged is lost, nothing is seen
//! out of order or by halves, and no trouble outlives its cause.

mod authorization;
pub mod chance;
mod clocks;
mod cluster;
mod crash;
mod disk;
mod draining;
mod entity;
mod failover;
mod framing;
mod frozen;
mod histories;
mod line;
mod linear;
mod membership;
mod outages;
mod overload;
mod pair;
mod respread;
mod sharded;
mod silence;
pub mod site;
mod unread;
mod upkeep;
