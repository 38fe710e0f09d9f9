//! The client against servers in this process, on paused time, and over sockets.

mod beside;
mod endless;
mod fake;
mod faults;
mod limits;
mod login;
mod loops;
mod network;
mod session;
mod strangers;
mod ways;
