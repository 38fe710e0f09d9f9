//! The client against servers in this process, on paused time, and over sockets.

mod beside;
mod fake;
mod faults;
mod limits;
mod login;
mod network;
mod session;
mod ways;
