//! redis-rs with the lock that articles teach, sync and async, and rslock.

use std::thread::sleep;
use std::time::{Duration, Instant};

use redis::cluster::ClusterClient;
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionAddr, ConnectionLike, ErrorKind, RedisError, RedisResult, Script, TlsCertificates};
use rslock::{Lock, LockError, LockManager};
use tokio::runtime::{Builder, Runtime};

use crate::place::{Addrs, MASTER, pem};
use crate::{Held, Library, Locker};

pub const REDIS: &str = "1.8.1";
const RSLOCK: &str = "0.10.0";

pub const UNLOCK: &str = "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";
pub const EXTEND: &str =
    "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end";

pub fn url(addr: &str) -> String {
    format!("redis://{addr}/")
}

fn urls(addrs: &[String]) -> Vec<String> {
    addrs.iter().map(|a| url(a)).collect()
}

/// What a program sets for TLS; redis-rs verifies the chain and the name.
fn trusted() -> TlsCertificates {
    let own = ClientTlsConfig { client_cert: pem("LOCKSTEP_TLS_CERT"), client_key: pem("LOCKSTEP_TLS_KEY") };
    certificates("LOCKSTEP_TLS_CA", Some(own))
}

fn certificates(authority: &str, client_tls: Option<ClientTlsConfig>) -> TlsCertificates {
    // Two providers may be linked in; the second choice is the first one again.
    let _ = rustls::crypto::ring::default_provider().install_default();
    TlsCertificates { client_tls, root_cert: Some(pem(authority)) }
}

fn secret_urls(addrs: &[String]) -> Vec<String> {
    addrs.iter().map(|a| format!("rediss://{a}/")).collect()
}

fn secret(a: &Addrs) -> Client {
    Client::build_with_tls(&secret_urls(&a.tls().plain)[0][..], trusted()).expect("certificates")
}

fn secret_sentinel(a: &Addrs) -> SentinelClient {
    let at = |addr: &String| {
        let (host, port) = addr.rsplit_once(':').expect("host:port");
        let (host, port) = (host.into(), port.parse().expect("a port"));
        ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
    };
    SentinelClientBuilder::new(a.tls().sentinel.iter().map(at), MASTER, SentinelServerType::Master)
        .expect("addresses")
        .set_client_to_sentinel_certificates(trusted())
        .set_client_to_redis_tls_mode(redis::TlsMode::Secure)
        .set_client_to_redis_certificates(trusted())
        .build()
        .expect("certificates")
}

fn secret_cluster(a: &Addrs) -> ClusterClient {
    ClusterClient::builder(secret_urls(&a.tls().cluster))
        .certs(trusted())
        .connection_timeout(PATIENCE)
        .response_timeout(PATIENCE)
        .build()
        .expect("certificates")
}

/// redis-rs waits half a second for a reply and one for a connection: too little for all tests' handshakes at once.
const PATIENCE: Duration = Duration::from_secs(10);

/// rslock waits as long as redis-rs does, and that cannot be set: a lock that nobody wants makes its connection.
fn connected(manager: LockManager) -> Box<dyn Locker> {
    let mut l = Rslock { runtime: runtime(), manager };
    let key = crate::place::new_key();
    let ttl = Duration::from_secs(8);
    let held = patiently(PATIENCE, || Ok(l.acquire(&key, ttl, Duration::ZERO).is_ok_and(|held| held.is_some())));
    assert!(held.expect("no error"), "not connected");
    Box::new(l)
}

/// What a ping says to whom one side must not trust.
pub fn stranger(a: &Addrs, authority: &str) -> String {
    let own = authority != "LOCKSTEP_TLS_CA";
    let certificates = certificates(authority, if own { trusted().client_tls } else { None });
    let client = Client::build_with_tls(&secret_urls(&a.tls().plain)[0][..], certificates).expect("certificates");
    let pong = client.get_connection().and_then(|mut c| redis::cmd("PING").query::<String>(&mut c));
    pong.expect_err("a stranger is not answered").to_string()
}

fn token() -> Vec<u8> {
    uuid::Uuid::new_v4().to_string().into_bytes()
}

fn set_nx(key: &str, token: &[u8], ttl: Duration) -> redis::Cmd {
    let mut cmd = redis::cmd("SET");
    cmd.arg(key).arg(token).arg("NX").arg("PX").arg(ttl.as_millis() as u64);
    cmd
}

fn owner(n: i32) -> Result<(), String> {
    if n == 1 { Ok(()) } else { Err("not the owner".into()) }
}

/// Tries every 50 ms until `attempt` gets the lock or `wait` is over.
fn patiently(wait: Duration, mut attempt: impl FnMut() -> Result<bool, String>) -> Result<bool, String> {
    let start = Instant::now();
    loop {
        if attempt()? {
            return Ok(true);
        }
        if start.elapsed() >= wait {
            return Ok(false);
        }
        sleep(Duration::from_millis(50));
    }
}

type Open<C> = Box<dyn FnMut() -> RedisResult<C> + Send>;

/// The recipe on a blocking connection, opened again after it was lost.
struct Sync<C: ConnectionLike + Send> {
    open: Open<C>,
    conn: Option<C>,
}

impl<C: ConnectionLike + Send> Sync<C> {
    fn with<T>(&mut self, f: impl FnOnce(&mut C) -> RedisResult<T>) -> Result<T, String> {
        if self.conn.is_none() {
            self.conn = Some((self.open)().map_err(|e| e.to_string())?);
        }
        let conn = self.conn.as_mut().expect("opened above");
        f(conn).map_err(|e: RedisError| {
            if e.is_unrecoverable_error() || e.is_connection_dropped() || e.is_io_error() {
                self.conn = None;
            }
            e.to_string()
        })
    }
}

impl<C: ConnectionLike + Send> Locker for Sync<C> {
    fn acquire(&mut self, key: &str, ttl: Duration, wait: Duration) -> Result<Option<Held>, String> {
        let token = token();
        let got = patiently(wait, || {
            self.with(|c| set_nx(key, &token, ttl).query::<Option<String>>(c)).map(|r| r.is_some())
        })?;
        Ok(got.then(|| Held { key: key.into(), token }))
    }

    fn release(&mut self, held: &Held) -> Result<(), String> {
        owner(self.with(|c| Script::new(UNLOCK).key(&held.key).arg(&held.token[..]).invoke(c))?)
    }

    fn extend(&mut self, held: &Held, ttl: Duration) -> Result<(), String> {
        let ms = ttl.as_millis() as u64;
        owner(self.with(|c| Script::new(EXTEND).key(&held.key).arg(&held.token[..]).arg(ms).invoke(c))?)
    }
}

fn sync<C: ConnectionLike + Send + 'static>(open: impl FnMut() -> RedisResult<C> + Send + 'static) -> Box<dyn Locker> {
    Box::new(Sync { open: Box::new(open), conn: None })
}

/// A Sentinel names no master that does not say that it is one: between two masters a program asks again.
fn sentinel(mut c: SentinelClient) -> Box<dyn Locker> {
    sync(move || {
        let start = Instant::now();
        loop {
            match c.get_connection() {
                Err(e) if e.kind() == ErrorKind::MasterNameNotFoundBySentinel && start.elapsed() < PATIENCE => {
                    sleep(Duration::from_millis(50));
                }
                done => return done,
            }
        }
    })
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

/// The recipe on a multiplexed async connection.
struct Async<C> {
    runtime: Runtime,
    open: Box<dyn Fn(&Runtime) -> RedisResult<C> + Send>,
    conn: Option<C>,
}

impl<C: redis::aio::ConnectionLike + Clone + Send> Async<C> {
    fn conn(&mut self) -> Result<C, String> {
        if self.conn.is_none() {
            self.conn = Some((self.open)(&self.runtime).map_err(|e| e.to_string())?);
        }
        Ok(self.conn.clone().expect("opened above"))
    }

    fn lost(&mut self, e: RedisError) -> String {
        if e.is_unrecoverable_error() || e.is_connection_dropped() || e.is_io_error() {
            self.conn = None;
        }
        e.to_string()
    }
}

impl<C: redis::aio::ConnectionLike + Clone + Send> Locker for Async<C> {
    fn acquire(&mut self, key: &str, ttl: Duration, wait: Duration) -> Result<Option<Held>, String> {
        let token = token();
        let got = patiently(wait, || {
            let mut c = self.conn()?;
            let cmd = set_nx(key, &token, ttl);
            let reply: RedisResult<Option<String>> = self.runtime.block_on(cmd.query_async(&mut c));
            reply.map(|r| r.is_some()).map_err(|e| self.lost(e))
        })?;
        Ok(got.then(|| Held { key: key.into(), token }))
    }

    fn release(&mut self, held: &Held) -> Result<(), String> {
        let mut c = self.conn()?;
        let script = Script::new(UNLOCK);
        let mut call = script.key(&held.key);
        let n = self.runtime.block_on(call.arg(&held.token[..]).invoke_async(&mut c));
        owner(n.map_err(|e| self.lost(e))?)
    }

    fn extend(&mut self, held: &Held, ttl: Duration) -> Result<(), String> {
        let mut c = self.conn()?;
        let script = Script::new(EXTEND);
        let mut call = script.key(&held.key);
        let n = self.runtime.block_on(call.arg(&held.token[..]).arg(ttl.as_millis() as u64).invoke_async(&mut c));
        owner(n.map_err(|e| self.lost(e))?)
    }
}

/// rslock with its own tries of 200 ms.
struct Rslock {
    runtime: Runtime,
    manager: LockManager,
}

impl Rslock {
    fn lock(&self, held: &Held) -> Lock {
        Lock {
            resource: held.key.clone().into_bytes(),
            val: held.token.clone(),
            validity_time: 0,
            lock_manager: self.manager.clone(),
        }
    }
}

impl Locker for Rslock {
    fn acquire(&mut self, key: &str, ttl: Duration, wait: Duration) -> Result<Option<Held>, String> {
        let pause = Duration::from_millis(200);
        self.manager.set_retry(1 + wait.div_duration_f64(pause) as u32, pause);
        match self.runtime.block_on(self.manager.lock(key, ttl)) {
            Ok(lock) => Ok(Some(Held { key: key.into(), token: lock.val })),
            Err(LockError::Unavailable) => Ok(None),
            Err(e) => Err(e.to_string()),
        }
    }

    fn release(&mut self, held: &Held) -> Result<(), String> {
        self.runtime.block_on(self.manager.unlock(&self.lock(held)));
        Ok(())
    }

    fn extend(&mut self, held: &Held, ttl: Duration) -> Result<(), String> {
        self.manager.set_retry(3, Duration::from_millis(200));
        let lock = self.lock(held);
        self.runtime.block_on(self.manager.extend(&lock, ttl)).map(|_| ()).map_err(|e| e.to_string())
    }

    fn refuses(&self) -> bool {
        false // unlock says nothing
    }
}

fn plain(a: &Addrs, query: &str) -> Client {
    Client::open(url(&a.plain[0]) + query).expect("an URL")
}

fn multiplexed(c: Client) -> Box<dyn Locker> {
    let patient = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(PATIENCE));
    let open = move |rt: &Runtime| rt.block_on(c.get_multiplexed_async_connection_with_config(&patient));
    Box::new(Async { runtime: runtime(), open: Box::new(open), conn: None })
}

fn recipe(mode: &'static str, make: fn(&Addrs) -> Box<dyn Locker>) -> Library {
    Library { client: "redis-rs SET NX PX + script", version: REDIS, mode, make }
}

fn asynchronous(mode: &'static str, make: fn(&Addrs) -> Box<dyn Locker>) -> Library {
    Library { client: "redis-rs SET NX PX + script (async)", version: REDIS, mode, make }
}

/// Every library in every mode that it has.
pub fn all() -> Vec<Library> {
    vec![
        recipe("plain RESP2", |a| {
            let c = plain(a, "");
            sync(move || c.get_connection())
        }),
        recipe("plain RESP3", |a| {
            let c = plain(a, "?protocol=resp3");
            sync(move || c.get_connection())
        }),
        recipe("sentinel", |a| {
            sentinel(SentinelClient::build(urls(&a.sentinel), MASTER, None, SentinelServerType::Master).expect("URLs"))
        }),
        recipe("cluster", |a| {
            let c = ClusterClient::new(urls(&a.cluster)).expect("URLs");
            sync(move || c.get_connection())
        }),
        asynchronous("plain RESP2", |a| multiplexed(plain(a, ""))),
        asynchronous("cluster", |a| {
            let c = ClusterClient::new(urls(&a.cluster)).expect("URLs");
            let open = move |rt: &Runtime| rt.block_on(c.get_async_connection());
            Box::new(Async { runtime: runtime(), open: Box::new(open), conn: None })
        }),
        recipe("plain TLS", |a| {
            let c = secret(a);
            sync(move || c.get_connection())
        }),
        recipe("sentinel TLS", |a| sentinel(secret_sentinel(a))),
        recipe("cluster TLS", |a| {
            let c = secret_cluster(a);
            sync(move || c.get_connection())
        }),
        asynchronous("plain TLS", |a| multiplexed(secret(a))),
        asynchronous("cluster TLS", |a| {
            let c = secret_cluster(a);
            let open = move |rt: &Runtime| rt.block_on(c.get_async_connection());
            Box::new(Async { runtime: runtime(), open: Box::new(open), conn: None })
        }),
        Library {
            client: "rslock",
            version: RSLOCK,
            mode: "plain TLS",
            make: |a| connected(LockManager::from_clients(vec![secret(a)])),
        },
        Library {
            client: "rslock",
            version: RSLOCK,
            mode: "cluster TLS",
            make: |a| connected(LockManager::from_cluster_client(secret_cluster(a))),
        },
        Library {
            client: "rslock",
            version: RSLOCK,
            mode: "plain",
            make: |a| connected(LockManager::new(vec![url(&a.plain[0])])),
        },
        Library {
            client: "rslock",
            version: RSLOCK,
            mode: "cluster",
            make: |a| {
                let manager = LockManager::new_cluster(urls(&a.cluster)).expect("URLs");
                connected(manager)
            },
        },
    ]
}
