//! docs/locks.md on redis-rs: LOCK.ACQUIRE and LOCK.RELEASE by its generic call.

use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use lockstep_conformance::Library;
use lockstep_conformance::clients::{REDIS, url};
use lockstep_conformance::place::{addrs_now, control, new_key, reported};
use redis::{AsyncConnectionConfig, Client, RedisResult};
use tokio::runtime::{Builder, Runtime};

type Reply = Option<(i64, i64, i64)>;

const NO_WAIT: Duration = Duration::ZERO;
/// For a lock that the test is to get.
const WAIT: Duration = Duration::from_secs(20);

trait Queue: Send {
    fn acquire(&mut self, key: &str, owner: &str, wait: Duration) -> RedisResult<Reply>;
    fn release(&mut self, key: &str, owner: &str) -> RedisResult<Option<i64>>;
}

struct Sync(redis::Connection);

impl Sync {
    fn open(client: Client) -> RedisResult<Box<dyn Queue>> {
        let wait = WAIT;
        let con = client.get_connection()?;
        con.set_read_timeout(Some(wait + Duration::from_secs(5)))?;
        Ok(Box::new(Sync(con)))
    }
}

impl Queue for Sync {
    fn acquire(&mut self, key: &str, owner: &str, wait: Duration) -> RedisResult<Reply> {
        let args = (key, owner, "PX", 30000, "WAIT", wait.as_millis() as u64);
        redis::cmd("LOCK.ACQUIRE").arg(args).query(&mut self.0)
    }

    fn release(&mut self, key: &str, owner: &str) -> RedisResult<Option<i64>> {
        redis::cmd("LOCK.RELEASE").arg(key).arg(owner).query(&mut self.0)
    }
}

struct Async(Runtime, redis::aio::MultiplexedConnection);

impl Async {
    fn open(client: Client) -> RedisResult<Box<dyn Queue>> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let con = runtime.block_on(async {
            let wait = WAIT;
            let config = AsyncConnectionConfig::new().set_response_timeout(Some(wait + Duration::from_secs(5)));
            let mut con = client.get_multiplexed_async_connection_with_config(&config).await?;
            redis::cmd("PING").exec_async(&mut con).await?;
            RedisResult::Ok(con)
        })?;
        Ok(Box::new(Async(runtime, con)))
    }
}

impl Queue for Async {
    fn acquire(&mut self, key: &str, owner: &str, wait: Duration) -> RedisResult<Reply> {
        let mut con = self.1.clone();
        self.0.block_on(async {
            let args = (key, owner, "PX", 30000, "WAIT", wait.as_millis() as u64);
            let reply: Option<(i64, i64, i64)> = redis::cmd("LOCK.ACQUIRE").arg(args).query_async(&mut con).await?;
            Ok(reply)
        })
    }

    fn release(&mut self, key: &str, owner: &str) -> RedisResult<Option<i64>> {
        let mut con = self.1.clone();
        self.0.block_on(async {
            let holds: Option<i64> = redis::cmd("LOCK.RELEASE").arg(key).arg(owner).query_async(&mut con).await?;
            Ok(holds)
        })
    }
}

type Make<'a> = &'a (dyn Fn() -> Box<dyn Queue> + std::marker::Sync);

/// Runs a test on both kinds of connections.
fn every(test: &str, body: fn(Make, &str)) {
    for (client, open) in [
        ("redis-rs LOCK.ACQUIRE", Sync::open as fn(Client) -> RedisResult<Box<dyn Queue>>),
        ("redis-rs LOCK.ACQUIRE (async)", Async::open),
    ] {
        let about = Library { client, version: REDIS, mode: "plain", make: |_| unreachable!("it takes no other locks") };
        let make = || open(Client::open(url(&addrs_now().plain[0])).expect("an address")).expect("connected");
        let lacking = control().is_none()
            && make().release("none", "nobody").is_err_and(|e| e.to_string().contains("unknown command"));
        let skip = Some("the server has no LOCK.ACQUIRE").filter(|_| lacking);
        reported(&about, test, skip, || body(&make, &new_key()));
    }
}

fn granted(client: &mut Box<dyn Queue>, key: &str, owner: &str, wait: Duration) {
    let (token, ttl, holds) = client.acquire(key, owner, wait).expect("a reply").expect("granted");
    assert!(token > 0 && (1..=30000).contains(&ttl) && holds == 1, "{token} {ttl} {holds}");
}

#[test]
fn replies_three_integers() {
    every("lock_acquire_replies_three_integers", |make, key| {
        let mut client = make();
        granted(&mut client, key, "me", NO_WAIT);
        assert_eq!(client.release(key, "me"), Ok(Some(0)));
    });
}

#[test]
fn waits_for_the_release() {
    every("lock_acquire_waits_for_the_release", |make, key| {
        let (mut first, mut second) = (make(), make());
        granted(&mut first, key, "first", NO_WAIT);
        let begin = Instant::now();
        scope(|s| {
            let waiting = s.spawn(|| {
                granted(&mut second, key, "second", WAIT);
                assert!(begin.elapsed() >= Duration::from_millis(250), "granted before the release");
                assert_eq!(second.release(key, "second"), Ok(Some(0)));
            });
            sleep(Duration::from_millis(250));
            assert_eq!(first.release(key, "first"), Ok(Some(0)));
            waiting.join().expect("the waiter");
        });
    });
}

#[test]
fn in_vain_replies_null() {
    every("lock_acquire_in_vain_replies_null", |make, key| {
        let (mut first, mut second) = (make(), make());
        granted(&mut first, key, "first", NO_WAIT);
        let (begin, wait) = (Instant::now(), Duration::from_millis(200));
        assert_eq!(second.acquire(key, "second", wait), Ok(None));
        assert!(begin.elapsed() >= wait, "waited too short");
        assert_eq!(second.release(key, "second"), Ok(None));
        assert_eq!(first.release(key, "first"), Ok(Some(0)));
    });
}

#[test]
fn refuses_a_deadlock() {
    every("lock_acquire_refuses_a_deadlock", |make, key| {
        let mut client = make();
        granted(&mut client, key, "me", NO_WAIT);
        let fault = client.acquire(key, "me", WAIT).expect_err("the owner waits for itself");
        assert_eq!(fault.code(), Some("DEADLOCK"));
        assert_eq!(client.release(key, "me"), Ok(Some(0)));
    });
}
