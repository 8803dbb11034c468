//! Where the servers are, how a test asks for a failover, where results go.

use std::env;
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::Library;

/// The name that every tutorial gives it.
pub const MASTER: &str = "mymaster";

/// Addresses of the nodes: followers first, the leader last.
#[derive(Clone)]
pub struct Addrs {
    pub plain: Vec<String>,
    pub sentinel: Vec<String>,
    pub cluster: Vec<String>,
    /// The same with TLS; empty where there is none.
    pub tls: Option<Box<Addrs>>,
}

impl Addrs {
    fn secret() -> Addrs {
        Addrs {
            plain: list("LOCKSTEP_TLS_ADDRS"),
            sentinel: list("LOCKSTEP_TLS_SENTINELS"),
            cluster: list("LOCKSTEP_TLS_CLUSTER"),
            tls: None,
        }
    }

    /// The addresses with TLS: `missing` has seen to it that there are any.
    pub fn tls(&self) -> &Addrs {
        self.tls.as_ref().expect("TLS listeners")
    }
}

/// A file that the environment names.
pub fn pem(name: &str) -> Vec<u8> {
    let path = env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
    std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn list(name: &str) -> Vec<String> {
    let value = env::var(name).unwrap_or_default();
    value.split(',').filter(|s| !s.is_empty()).map(String::from).collect()
}

pub fn control() -> Option<String> {
    env::var("LOCKSTEP_CONTROL").ok().filter(|s| !s.is_empty())
}

/// The few requests that the harness answers need no HTTP library.
fn http(method: &str, path: &str, text: &str) -> String {
    let url = control().expect("LOCKSTEP_CONTROL is not set");
    let addr = url.strip_prefix("http://").expect("an http URL");
    let mut conn = TcpStream::connect(addr).expect("the harness answers");
    write!(conn, "{method} {path} HTTP/1.0\r\nHost: {addr}\r\nContent-Length: {}\r\n\r\n{text}", text.len()).expect("sent");
    let mut reply = String::new();
    conn.read_to_string(&mut reply).expect("a reply");
    let (head, body) = reply.split_once("\r\n\r\n").expect("a whole reply");
    assert!(head.contains(" 200 "), "{method} {path}: {reply}");
    body.to_string()
}

pub fn addrs_now() -> Addrs {
    if control().is_none() {
        let found = Addrs {
            plain: list("LOCKSTEP_ADDRS"),
            sentinel: list("LOCKSTEP_SENTINELS"),
            cluster: list("LOCKSTEP_CLUSTER"),
            tls: Some(Box::new(Addrs::secret())).filter(|s| !s.plain.is_empty()),
        };
        assert!(!found.plain.is_empty(), "set LOCKSTEP_ADDRS=host:port[,host:port...]");
        return found;
    }
    let v: serde_json::Value = serde_json::from_str(&http("GET", "/addrs", "")).expect("JSON");
    let strings = |v: &serde_json::Value, name: &str| -> Vec<String> {
        let all = v[name].as_array().expect("a list");
        all.iter().map(|s| s.as_str().expect("an address").to_string()).collect()
    };
    let faces = |v: &serde_json::Value| Addrs {
        plain: strings(v, "plain"),
        sentinel: strings(v, "sentinel"),
        cluster: strings(v, "cluster"),
        tls: None,
    };
    Addrs { tls: Some(Box::new(faces(&v["tls"]))), ..faces(&v) }
}

/// kill -9 of the leader; returns when another one leads and it is back.
pub fn failover() {
    http("POST", "/failover", "");
}

/// Has the harness ask LOCK.LIST and its kin about a lock; panics if they are wrong. The owner is what the library has stored: a name of any bytes.
pub fn sight(l: &Library, key: &str, queue: &str) {
    let seen = serde_json::json!({
        "client": l.client, "version": l.version, "mode": l.mode, "key": key, "kind": "plain", "stored": true, "holds": 1, "queue": queue,
    });
    http("POST", "/sight", &seen.to_string());
}

/// Why no failover can be had here.
pub fn no_failover(addrs: &Addrs) -> Option<&'static str> {
    match control() {
        None => Some("nobody to ask for a failover"),
        Some(_) if addrs.plain.len() < 3 => Some("a failover needs three nodes"),
        Some(_) => None,
    }
}

pub fn new_key() -> String {
    format!("rust:{}", uuid::Uuid::new_v4())
}

/// Runs a test and appends its result to $LOCKSTEP_RESULTS.
pub fn reported(l: &Library, test: &str, skip: Option<&str>, body: impl FnOnce()) {
    let outcome = match skip {
        Some(_) => Ok(()),
        None => catch_unwind(AssertUnwindSafe(body)),
    };
    let mut line = serde_json::json!({
        "client": l.client, "version": l.version, "mode": l.mode, "test": test,
        "result": if outcome.is_err() { "failed" } else if skip.is_some() { "skipped" } else { "passed" },
    });
    if let Some(reason) = skip {
        line["reason"] = reason.into();
    }
    if let Ok(file) = env::var("LOCKSTEP_RESULTS") {
        let mut f = OpenOptions::new().create(true).append(true).open(file).expect("results");
        // One write: tests run side by side.
        f.write_all(format!("{line}\n").as_bytes()).expect("results");
    }
    if let Err(fault) = outcome {
        eprintln!("failed: {} {} {test}", l.client, l.mode);
        resume_unwind(fault);
    }
}
