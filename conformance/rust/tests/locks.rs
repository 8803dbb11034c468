//! What every lock library promises, in every mode it has.

use std::sync::atomic::{AtomicI32, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use lockstep_conformance::place::{addrs_now, control, new_key, reported, sight};
use lockstep_conformance::{Held, Locker, clients, eventually};

type Make<'a> = &'a (dyn Fn() -> Box<dyn Locker> + Sync);

const S: Duration = Duration::from_secs(1);
const NO_WAIT: Duration = Duration::ZERO;

fn get(l: &mut Box<dyn Locker>, key: &str, ttl: Duration) -> Option<Held> {
    l.acquire(key, ttl, NO_WAIT).expect("acquire")
}

/// Runs one promise of all libraries side by side: most of it is waiting.
fn every(test: &str, body: fn(Make, &str)) {
    let addrs = addrs_now();
    let all = clients::all();
    scope(|s| {
        for l in &all {
            let addrs = &addrs;
            s.spawn(move || {
                reported(l, test, l.missing(addrs), || {
                    let make = || (l.make)(addrs);
                    body(&make, &new_key());
                });
            });
        }
    });
}

#[test]
fn acquire_and_release() {
    every("acquire_and_release", |make, key| {
        let (mut a, mut b) = (make(), make());
        let held = get(&mut a, key, 30 * S).expect("a free lock");
        assert!(get(&mut b, key, 30 * S).is_none(), "granted twice");
        a.release(&held).expect("release");
        let again = get(&mut b, key, 30 * S).expect("a released lock");
        b.release(&again).expect("release");
    });
}

#[test]
fn contention() {
    every("contention", |make, key| {
        let (inside, seen) = (AtomicI32::new(0), AtomicI32::new(0));
        scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    let mut l = make();
                    for _ in 0..4 {
                        let held = l.acquire(key, 20 * S, 20 * S).expect("acquire").expect("not in vain");
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two inside");
                        sleep(Duration::from_millis(2));
                        inside.fetch_sub(1, Ordering::SeqCst);
                        seen.fetch_add(1, Ordering::SeqCst);
                        l.release(&held).expect("release");
                    }
                });
            }
        });
        assert_eq!(seen.load(Ordering::SeqCst), 16);
    });
}

#[test]
fn extend() {
    every("extend", |make, key| {
        let (mut a, mut b) = (make(), make());
        let held = get(&mut a, key, 5 * S).expect("a free lock");
        sleep(3 * S);
        a.extend(&held, 5 * S).expect("extend");
        sleep(3 * S);
        assert!(get(&mut b, key, 5 * S).is_none(), "the lease ended before its extension");
        a.release(&held).expect("release");
    });
}

#[test]
fn expiry() {
    every("expiry", |make, key| {
        let (mut a, mut b) = (make(), make());
        let start = Instant::now();
        get(&mut a, key, 3 * S).expect("a free lock");
        assert!(get(&mut b, key, S).is_none(), "granted twice");
        assert!(eventually(15 * S, || get(&mut b, key, S).is_some()), "the lease never ended");
        assert!(start.elapsed() >= 3 * S, "the lease ended early");
    });
}

#[test]
fn release_by_non_owner_is_refused() {
    every("release_by_non_owner_is_refused", |make, key| {
        let (mut a, mut b) = (make(), make());
        let held = get(&mut a, key, 30 * S).expect("a free lock");
        let stranger = Held { key: key.into(), token: b"somebody else".to_vec() };
        let refused = b.release(&stranger).is_err();
        assert_eq!(refused, b.refuses());
        assert!(b.extend(&stranger, 30 * S).is_err(), "a stranger's extension was not refused");
        assert!(get(&mut b, key, 30 * S).is_none(), "a stranger released the lock");
        a.release(&held).expect("release");
    });
}

#[test]
fn waiter_gets_the_lock_when_it_is_released() {
    every("waiter_gets_the_lock_when_it_is_released", |make, key| {
        let mut a = make();
        let held = get(&mut a, key, 60 * S).expect("a free lock");
        scope(|s| {
            let waiting = s.spawn(|| {
                let mut b = make();
                let got = b.acquire(key, 60 * S, 30 * S).expect("acquire").expect("the waiter gets the lock");
                let when = Instant::now();
                b.release(&got).expect("release");
                when
            });
            sleep(S * 3 / 10);
            let released = Instant::now();
            a.release(&held).expect("release");
            let granted = waiting.join().expect("the waiter");
            assert!(granted >= released, "granted before it was released");
            assert!(granted - released < 15 * S, "the waiter waited for its timeout");
        });
    });
}

/// A lock that is held, and that another client wants, as LOCK.LIST and its kin show it.
#[test]
fn sight_of_a_contended_lock() {
    let addrs = addrs_now();
    let all = clients::all();
    scope(|s| {
        for l in &all {
            let addrs = &addrs;
            s.spawn(move || {
                let skip = if control().is_none() { Some("nobody to ask: LOCKSTEP_CONTROL is not set") } else { l.missing(addrs) };
                reported(l, "sight", skip, || {
                    let key = new_key();
                    let mut a = (l.make)(addrs);
                    let held = get(&mut a, &key, 60 * S).expect("a free lock");
                    scope(|s| {
                        let waiting = s.spawn(|| {
                            let mut b = (l.make)(addrs);
                            let got = b.acquire(&key, 60 * S, 40 * S).expect("acquire").expect("the waiter gets the lock");
                            b.release(&got).expect("release");
                        });
                        // rslock asks with another name each time, so LOCK.WAITERS does not show it.
                        sight(l, &key, if l.client.starts_with("rslock") { "" } else { "poller" });
                        a.release(&held).expect("release");
                        waiting.join().expect("the waiter");
                    });
                });
            });
        }
    });
}

/// TLS is what it says: who is not to be trusted is refused, on either side.
#[test]
fn strangers_are_refused() {
    let addrs = addrs_now();
    let all = clients::all();
    let l = all.iter().find(|l| l.mode == "plain TLS").expect("a mode with TLS");
    reported(l, "nodes_of_another_authority_are_refused", l.missing(&addrs), || {
        let why = clients::stranger(&addrs, "LOCKSTEP_TLS_OTHER_CA");
        assert!(why.contains("certificate"), "{why}");
    });
    reported(l, "a_client_without_a_certificate_is_refused", l.missing(&addrs), || {
        clients::stranger(&addrs, "LOCKSTEP_TLS_CA");
    });
}
