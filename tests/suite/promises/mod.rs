//! What users stake their data on: nothing acknowledged is lost, nothing is seen
//! out of order or by halves, and no trouble outlives its cause.

mod chance;
mod cluster;
mod crash;
mod entity;
mod histories;
mod line;
mod linear;
mod outages;
mod proxy;
mod rolling;
mod site;
