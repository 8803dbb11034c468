//! One failover in the middle of held and contended locks of every library at
//! once. A program of its own: no other test runs beside it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread::{scope, sleep};
use std::time::Duration;

use lockstep_conformance::place::{Addrs, addrs_now, failover, new_key, no_failover, reported};
use lockstep_conformance::{Held, Library, Locker, clients, eventually};

const S: Duration = Duration::from_secs(1);
const WORKERS: usize = 3;

struct Stage {
    library: Library,
    key: String,
    skip: Option<&'static str>,
    held: Mutex<Option<Held>>,
    over: AtomicBool,
    inside: AtomicI32,
    after: AtomicI32,
    faults: Mutex<Vec<String>>,
    unknown: Mutex<Vec<String>>,
}

impl Stage {
    fn fault(&self, text: String) {
        let lost = ["roken pipe", "refused", "reset", "end of file", "eof", "closed", "dropped", "timed out"];
        // An async client of redis-rs in Cluster mode waits half a second for a reply, less than an election takes.
        let impatient = self.library.client.ends_with("(async)") && text.contains("timed out");
        // A client of the killed node may send a release again that had been carried out.
        let again = !self.library.mode.starts_with("plain") && text.contains("not the owner");
        if text.contains("INDETERMINATE") || again {
            self.unknown.lock().unwrap().push(text);
        } else if !impatient && (self.library.mode.starts_with("plain") || !lost.iter().any(|part| text.contains(part))) {
            self.faults.lock().unwrap().push(text);
        }
    }

    fn contend(&self, addrs: &Addrs, stop: &AtomicBool) {
        let mut l = (self.library.make)(addrs);
        while !stop.load(Ordering::SeqCst) {
            if let Err(text) = self.turn(&mut l) {
                self.fault(text);
                sleep(S / 10);
            }
            sleep(S / 100);
        }
    }

    fn turn(&self, l: &mut Box<dyn Locker>) -> Result<(), String> {
        // A grant whose reply is lost with its connection is nobody's until it
        // ends (as with Redis), so leases are short.
        let Some(held) = l.acquire(&self.key, 8 * S, 8 * S)? else { return Ok(()) };
        let over = self.over.load(Ordering::SeqCst);
        if self.inside.fetch_add(1, Ordering::SeqCst) != 0 {
            self.faults.lock().unwrap().push("two inside".into());
        }
        sleep(S / 500);
        self.inside.fetch_sub(1, Ordering::SeqCst);
        l.release(&held)?;
        if over {
            self.after.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    }

    fn check_held(&self, addrs: &Addrs) {
        let held = self.held.lock().unwrap().clone().expect("held before the failover");
        let (mut owner, mut thief) = ((self.library.make)(addrs), (self.library.make)(addrs));
        assert!(thief.acquire(&held.key, S, Duration::ZERO).expect("acquire").is_none(), "granted twice");
        owner.release(&held).expect("release");
        assert!(thief.acquire(&held.key, S, Duration::ZERO).expect("acquire").is_some(), "not released");
    }

    fn check_contended(&self) {
        let (faults, unknown) = (self.faults.lock().unwrap(), self.unknown.lock().unwrap());
        assert!(faults.is_empty(), "{faults:?}");
        // Only what was in flight when the leader died may have an unknown outcome.
        assert!(unknown.len() <= WORKERS, "{unknown:?}");
        assert!(self.after.load(Ordering::SeqCst) >= 3, "nobody got the lock after the failover");
    }
}

fn stages(addrs: &Addrs) -> Vec<Stage> {
    let stage = |library: Library| Stage {
        key: new_key(),
        skip: library.missing(addrs).or(no_failover(addrs)),
        library,
        held: Mutex::default(),
        over: AtomicBool::default(),
        inside: AtomicI32::default(),
        after: AtomicI32::default(),
        faults: Mutex::default(),
        unknown: Mutex::default(),
    };
    clients::all().into_iter().map(stage).collect()
}

/// Kills the leader and waits until the contended locks go on.
fn survive(stages: &[Stage], addrs: &Addrs) {
    let stop = AtomicBool::new(false);
    scope(|s| {
        for stage in stages {
            for _ in 0..WORKERS {
                s.spawn(|| stage.contend(addrs, &stop));
            }
            let mut owner = (stage.library.make)(addrs);
            let key = format!("{}:held", stage.key);
            *stage.held.lock().unwrap() = owner.acquire(&key, 120 * S, Duration::ZERO).expect("acquire");
        }
        sleep(S / 2);
        failover();
        for stage in stages {
            stage.over.store(true, Ordering::SeqCst);
        }
        eventually(25 * S, || stages.iter().all(|s| s.after.load(Ordering::SeqCst) >= 3));
        stop.store(true, Ordering::SeqCst);
    });
}

#[test]
fn locks_outlive_the_leader() {
    let addrs = addrs_now();
    let (runs, skipped): (Vec<Stage>, Vec<Stage>) = stages(&addrs).into_iter().partition(|s| s.skip.is_none());
    if !runs.is_empty() {
        survive(&runs, &addrs);
    }
    let mut failed = Vec::new();
    for s in runs.iter().chain(&skipped) {
        for (test, body) in [
            ("failover_held_lock_is_still_held", &(|| s.check_held(&addrs)) as &dyn Fn()),
            ("failover_contended_lock_goes_on", &|| s.check_contended()),
        ] {
            let run = || reported(&s.library, test, s.skip, body);
            if std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err() {
                failed.push(format!("{} {} {test}", s.library.client, s.library.mode));
            }
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}
