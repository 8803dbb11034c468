//! The lock libraries of Rust against the servers in $LOCKSTEP_ADDRS: what the
//! tests share. An adapter is one client with a connection of its own.

pub mod clients;
pub mod place;

use std::time::{Duration, Instant};

/// A lock that was acquired: its key and its owner's token.
#[derive(Clone)]
pub struct Held {
    pub key: String,
    pub token: Vec<u8>,
}

/// One client of a lock library.
pub trait Locker: Send {
    /// None when the lock was not to be had within `wait`.
    fn acquire(&mut self, key: &str, ttl: Duration, wait: Duration) -> Result<Option<Held>, String>;
    fn release(&mut self, held: &Held) -> Result<(), String>;
    fn extend(&mut self, held: &Held, ttl: Duration) -> Result<(), String>;
    /// Whether release tells that the caller was not the owner.
    fn refuses(&self) -> bool {
        true
    }
}

/// A library in a mode.
pub struct Library {
    pub client: &'static str,
    pub version: &'static str,
    pub mode: &'static str,
    pub make: fn(&place::Addrs) -> Box<dyn Locker>,
}

impl Library {
    /// Why the mode cannot be had here.
    pub fn missing(&self, addrs: &place::Addrs) -> Option<&'static str> {
        if self.mode.ends_with("TLS") && addrs.tls.is_none() {
            return Some("no TLS listener");
        }
        if self.mode == "sentinel" && addrs.sentinel.is_empty() {
            return Some("no Sentinel listener");
        }
        if self.mode.starts_with("cluster") && addrs.cluster.is_empty() {
            return Some("no Cluster listener");
        }
        None
    }
}

/// Polls until `ok` or the time is over.
pub fn eventually(limit: Duration, mut ok: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < limit {
        if ok() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}
