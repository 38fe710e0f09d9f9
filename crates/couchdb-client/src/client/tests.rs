//! The client against servers in this process, on paused time, and over sockets.

mod destinations;
mod endless;
mod fake;
mod faults;
mod hedge;
mod limits;
mod login;
mod loops;
mod network;
mod open;
mod session;
mod strangers;
