//! Opens connections.

use std::fmt;
use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::select_ok;
use lock_core::Error;
use redis::aio::{MultiplexedConnection, PubSub, SendError};
use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use redis::{AsyncConnectionConfig, ProtocolVersion, PushInfo, RedisConnectionInfo, RedisResult, Value, cmd};
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::tls::Encryption;
use super::uptime;
use crate::address::Address;
use crate::error;
use crate::network::{Network, Stream};
use crate::tls::Tls;
use crate::url::Login;

/// The bounds of the time for one attempt to connect; between them, one operation timeout. Long enough for a
/// first packet that is lost, and short enough not to sleep through the end of an outage.
const SHORTEST_ATTEMPT: Duration = Duration::from_secs(1);
const LONGEST_ATTEMPT: Duration = Duration::from_secs(5);

/// The number of requests that may queue for the wire before further ones wait for a place: more than are ever on their way, dropped
/// ones included. A batch relies on being in the queue once it was polled, so that what undoes a part of it comes behind.
const PIPELINE: usize = 1 << 20;

/// A way of opening connections, whichever server they go to.
pub(crate) struct Opener {
    info: RedisConnectionInfo,
    encryption: Option<Encryption>,
    network: Option<Arc<dyn Network>>,
    pub(crate) op_timeout: Duration,
    /// The beginning of the keys of mutexes, of which a server is asked whether it compares and deletes them by itself.
    prefix: Option<Arc<str>>,
}

impl fmt::Debug for Opener {
    /// Without user and password; a user may be a misplaced password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opener")
            .field("database", &self.info.db())
            .field("encryption", &self.encryption)
            .field("op_timeout", &self.op_timeout)
            .finish_non_exhaustive()
    }
}

/// A connection for commands. Its driver ends with the last clone, whatever is still under way.
#[derive(Debug, Clone)]
pub(crate) struct Commands {
    pub(super) connection: MultiplexedConnection,
    driver: Arc<Driver>,
}

#[derive(Debug)]
struct Driver {
    task: AbortHandle,
    ended: Arc<Notify>,
}

impl Commands {
    fn over<D: Future<Output = ()> + Send + 'static>(connection: MultiplexedConnection, driver: D) -> Self {
        let ended = Arc::<Notify>::default();
        let told = ended.clone();
        let end = EndOfDriver(told);
        let task = tokio::spawn(async move {
            driver.await;
            drop(end);
        });
        Self { connection, driver: Arc::new(Driver { task: task.abort_handle(), ended }) }
    }

    /// Ends the connection under whoever still waits for an answer.
    pub(super) fn abort(&self) {
        self.driver.task.abort();
    }

    /// Waits until the connection has ended; otherwise only the next command would notice. For one task at a time.
    pub(super) async fn ended(&self) {
        self.driver.ended.notified().await;
    }
}

/// Tells the task that keeps the connection up, when dropped, that the driver has ended, also by a panic.
struct EndOfDriver(Arc<Notify>);

impl Drop for EndOfDriver {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Opener {
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](lock_core::ErrorKind::InvalidArgument) if a certificate cannot be used,
    /// [`ErrorKind::Unsupported`](lock_core::ErrorKind::Unsupported) if TLS is asked for and not built in.
    pub(crate) fn new(login: &Login, database: i64, tls: Option<&Tls>, op_timeout: Duration) -> Result<Self, Error> {
        let mut info = RedisConnectionInfo::default().set_db(database);
        if let Some(user) = &login.user {
            info = info.set_username(user);
        }
        // A user without a password logs in by an empty one: left out, the client would be the default user, with other rights.
        if let Some(password) = login.password.as_deref().or(login.user.as_ref().map(|_| "")) {
            info = info.set_password(password);
        }
        Ok(Self { info, encryption: tls.map(Encryption::new).transpose()?, network: None, op_timeout, prefix: None })
    }

    /// Opens connections over another network than the system's.
    pub(crate) fn over(self, network: Option<Arc<dyn Network>>) -> Self {
        Self { network, ..self }
    }

    /// Asks each server whether it compares and deletes keys that begin with this by itself.
    pub(crate) fn for_keys_of(self, prefix: Arc<str>) -> Self {
        Self { prefix: Some(prefix), ..self }
    }

    /// The time for one attempt to connect, with all of its steps.
    pub(super) fn connect_timeout(&self) -> Duration {
        self.op_timeout.clamp(SHORTEST_ATTEMPT, LONGEST_ATTEMPT)
    }

    /// Waits for this step of connecting, for as long as an attempt may take.
    async fn in_time<T>(&self, step: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
        let late = |_| Err(io::Error::from(io::ErrorKind::TimedOut).into());
        tokio::time::timeout(self.connect_timeout(), step).await.unwrap_or_else(late)
    }

    /// A connection for commands, each of which may take one operation timeout.
    pub(super) async fn commands(&self, address: &Address) -> RedisResult<Commands> {
        self.patient_commands(address, Duration::ZERO).await
    }

    /// A connection for commands that may take so much longer.
    pub(super) async fn patient_commands(&self, address: &Address, longer: Duration) -> RedisResult<Commands> {
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(Some(self.op_timeout + longer))
            .set_pipeline_buffer_size(PIPELINE);
        let open = async {
            let stream = self.stream(address).await?;
            let (connection, driver) = MultiplexedConnection::new_with_config(&self.info, stream, config).await?;
            Ok(Commands::over(connection, driver))
        };
        self.in_time(open).await
    }

    /// A connection on which the server tells of every key that was looked at over it and has changed since.
    pub(super) async fn tracking_commands(
        &self,
        address: &Address,
        told: impl Fn(PushInfo) -> Result<(), SendError> + Send + Sync + 'static,
    ) -> RedisResult<Commands> {
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(self.op_timeout)).set_push_sender(told);
        let info = self.info.clone().set_protocol(ProtocolVersion::RESP3);
        let open = async {
            let stream = self.stream(address).await?;
            let (connection, driver) = MultiplexedConnection::new_with_config(&info, stream, config).await?;
            let mut commands = Commands::over(connection, driver);
            cmd("CLIENT").arg("TRACKING").arg("ON").exec_async(&mut commands.connection).await?;
            Ok(commands)
        };
        self.in_time(open).await
    }

    /// A connection that only listens, to this channel.
    pub(super) async fn pushes(&self, address: &Address, channel: &str) -> RedisResult<PubSub> {
        let subscribe = async {
            let mut connection = PubSub::new(&self.info, self.stream(address).await?).await?;
            connection.subscribe(channel).await?;
            Ok(connection)
        };
        self.in_time(subscribe).await
    }

    async fn stream(&self, address: &Address) -> io::Result<Box<dyn Stream>> {
        match address {
            Address::Tcp { host, port } => {
                if let Some(network) = &self.network {
                    return network.connect(host, *port).await;
                }
                let stream = self.tcp(host, *port).await?;
                Ok(match &self.encryption {
                    Some(encryption) => Box::new(encryption.over(stream, host).await?),
                    None => Box::new(stream),
                })
            }
            #[cfg(unix)]
            Address::Unix(path) => Ok(Box::new(tokio::net::UnixStream::connect(path).await?)),
            #[cfg(not(unix))]
            Address::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    async fn tcp(&self, host: &str, port: u16) -> io::Result<TcpStream> {
        let addresses: Vec<_> = lookup_host((host, port)).await.map_err(|e| error::Unresolved::of(&e))?.collect();
        if addresses.is_empty() {
            return Err(error::Unresolved::of(&io::Error::other("the host has no address")));
        }
        // All at once: one that does not answer is waited for only if none of the others does.
        let (stream, _) = select_ok(addresses.into_iter().map(|address| Box::pin(TcpStream::connect(address)))).await?;
        stream.set_nodelay(true)?;
        // A peer that vanished without a word is noticed by the kernel: when idle by keep-alive probes, and when
        // something was sent by the lack of an acknowledgement.
        let keepalive =
            TcpKeepalive::new().with_time(Duration::from_secs(5)).with_interval(Duration::from_secs(1)).with_retries(3);
        SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
        #[cfg(target_os = "linux")]
        SockRef::from(&stream).set_tcp_user_timeout(Some(self.op_timeout.max(Duration::from_secs(1)) * 2))?;
        Ok(stream)
    }
}

/// A way to find the server that is meant, which may move.
#[async_trait]
pub(crate) trait Locate: fmt::Debug + Send + Sync {
    /// Finds the server's address at this moment.
    async fn find(&self) -> Result<Address, Error>;

    /// The number of addresses that it is worth trying, one after the other.
    fn choices(&self) -> usize {
        1
    }

    /// Whether the server there has to be a master. Who names it may not have heard of a switch yet, and a master that was
    /// replaced may not either.
    fn wants_master(&self) -> bool {
        false
    }

    /// Waits until somebody else has found that the server is not at this address any more; for ever where that cannot be told.
    async fn moved_from(&self, _found: &Address) {
        pending().await
    }
}

/// A server that is always at this address.
#[async_trait]
impl Locate for Address {
    async fn find(&self) -> Result<Address, Error> {
        Ok(self.clone())
    }
}

/// Opens connections to the one server that is meant, wherever it is now.
#[derive(Debug)]
pub(crate) struct Dial {
    pub(super) opener: Arc<Opener>,
    locator: Arc<dyn Locate>,
    /// A server that has been up for less is as good as down.
    min_uptime: Duration,
    /// The server's name in errors: host, port and database, or the name of the master; no credentials.
    pub(crate) server: String,
}

impl Dial {
    /// To the server at this address.
    pub(crate) fn to(opener: Arc<Opener>, address: Address) -> Self {
        let server = match &address {
            Address::Tcp { .. } => format!("{address}/{}", opener.info.db()),
            Address::Unix(_) => address.to_string(),
        };
        Self::at(opener, Arc::new(address), server)
    }

    /// Dials whatever server is found by this at the time.
    pub(super) fn at(opener: Arc<Opener>, locator: Arc<dyn Locate>, server: String) -> Self {
        Self { opener, locator, min_uptime: Duration::ZERO, server }
    }

    /// Leaves a server alone until it has been up for this long.
    pub(crate) fn once_up_for(self, min_uptime: Duration) -> Self {
        Self { min_uptime, ..self }
    }

    pub(super) fn op_timeout(&self) -> Duration {
        self.opener.op_timeout
    }

    /// The beginning of the keys of mutexes, if a server's own compare-and-delete is of use for them.
    pub(super) fn prefix(&self) -> Option<&str> {
        self.opener.prefix.as_deref()
    }

    /// Waits for a step that belongs to connecting, for as long as an attempt may take.
    pub(super) async fn in_time<T>(&self, step: impl Future<Output = RedisResult<T>>) -> Result<T, Error> {
        self.opener.in_time(step).await.map_err(|e| error::of_connect(e, &self.server))
    }

    /// A connection for commands, and to where.
    ///
    /// # Errors
    /// Also if the server that was found is no master where one is wanted.
    pub(super) async fn commands(&self) -> Result<(Address, Commands), Error> {
        self.wherever_it_is(|address| self.commands_at(address)).await
    }

    async fn commands_at(&self, address: Address) -> Result<Commands, Error> {
        let refused = |e| error::of_connect(e, &self.server);
        let mut commands = self.opener.commands(&address).await.map_err(refused)?;
        if self.locator.wants_master() {
            check_master(&mut commands.connection).await.map_err(refused)?;
        }
        uptime::at_least(self.min_uptime, &mut commands.connection, &self.server).await?;
        Ok(commands)
    }

    /// A connection that only listens, to this channel, and to where.
    pub(super) async fn pushes(&self, channel: &str) -> Result<(Address, PubSub), Error> {
        let mut outcome = self.listen(channel).await;
        for _ in 1..self.locator.choices() {
            if outcome.is_ok() {
                break;
            }
            outcome = self.listen(channel).await;
        }
        outcome
    }

    async fn listen(&self, channel: &str) -> Result<(Address, PubSub), Error> {
        self.wherever_it_is(|address| async move {
            let connection = self.opener.pushes(&address, channel).await;
            connection.map_err(|e| error::of_connect(e, &self.server))
        })
        .await
    }

    /// Opens a connection to the server where it is found. An attempt at an address that it has moved from is given up for one at the
    /// new address: a host that has vanished would be waited for in vain. Once only, so that contradictory news keep no attempt from
    /// its end.
    async fn wherever_it_is<T, F>(&self, open: impl Fn(Address) -> F) -> Result<(Address, T), Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let found = self.locator.find().await?;
        tokio::select! {
            biased;
            () = self.locator.moved_from(&found) => {}
            opened = open(found.clone()) => return Ok((found, opened?)),
        }
        let found = self.locator.find().await?;
        let opened = open(found.clone()).await?;
        Ok((found, opened))
    }
}

/// Fails unless this connection leads to a master.
async fn check_master(connection: &mut MultiplexedConnection) -> RedisResult<()> {
    let role: Vec<Value> = cmd("ROLE").query_async(connection).await?;
    if role.first() == Some(&Value::BulkString(b"master".to_vec())) {
        return Ok(());
    }
    let what = (redis::ErrorKind::Server(redis::ServerErrorKind::ReadOnly), "it is no master");
    Err(what.into())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use lock_testkit::testing::{PROMPTLY, installed, soon};
    use lock_testkit_servers::redis::RedisServer;
    use tokio::net::TcpListener;
    use tokio::sync::Semaphore;

    use super::*;

    /// A server that is found at one address after the other, and has moved from there once for each permit.
    #[derive(Debug)]
    struct Moving {
        addresses: Mutex<std::vec::IntoIter<Address>>,
        moves: Semaphore,
    }

    #[async_trait]
    impl Locate for Moving {
        async fn find(&self) -> Result<Address, Error> {
            Ok(self.addresses.lock().unwrap().next().expect("a further address"))
        }

        async fn moved_from(&self, _found: &Address) {
            self.moves.acquire().await.unwrap().forget();
        }
    }

    fn moving<const N: usize>(addresses: [&str; N]) -> (Dial, Arc<Moving>) {
        let addresses = addresses.map(|address| Address::parse(address, 0).unwrap()).to_vec().into_iter();
        let moving = Arc::new(Moving { addresses: Mutex::new(addresses), moves: Semaphore::new(0) });
        let opener = Opener::new(&Login::default(), 0, None, LONGEST_ATTEMPT).unwrap();
        (Dial::at(Arc::new(opener), moving.clone(), "a server that moves".to_owned()), moving)
    }

    #[tokio::test]
    async fn an_attempt_at_a_host_that_does_not_answer_is_given_up_when_the_server_is_known_to_have_moved() {
        let Some(server) = installed(RedisServer::start_own().await) else { return };
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let silent_address = silent.local_addr().unwrap().to_string();
        let (dial, moving) = moving([&silent_address, server.address(), &silent_address, server.address()]);
        let moves = async || {
            let attempt = soon("an attempt", PROMPTLY, silent.accept()).await.unwrap();
            moving.moves.add_permits(1);
            attempt
        };
        let (commands, _attempt) = tokio::join!(dial.commands(), moves());
        assert_eq!(commands.unwrap().0.to_string(), server.address());
        let (pushes, _attempt) = tokio::join!(dial.pushes("channel"), moves());
        assert_eq!(pushes.err().map(|error| error.to_string()), None);
    }

    /// Two that look for it at once may find two different ones.
    #[tokio::test]
    async fn news_that_contradict_each_other_keep_no_attempt_from_its_end() {
        let Some(server) = installed(RedisServer::start_own().await) else { return };
        let (dial, moving) = moving([server.address(), server.address()]);
        moving.moves.add_permits(Semaphore::MAX_PERMITS);
        assert_eq!(dial.commands().await.unwrap().0.to_string(), server.address());
    }

    #[test]
    fn an_opener_shows_neither_user_nor_password() {
        let login = Login { user: Some("s3cret-user".to_owned()), password: Some("s3cret-password".to_owned()) };
        let opener = Opener::new(&login, 0, None, Duration::from_secs(2)).unwrap();
        assert!(!format!("{opener:?} {opener:#?}").contains("s3cret"), "{opener:?}");
    }

    #[test]
    fn connecting_has_an_operation_timeout_within_limits() {
        let limit = |seconds| {
            let login = Login::default();
            Opener::new(&login, 0, None, Duration::from_secs(seconds)).unwrap().connect_timeout().as_secs()
        };
        assert_eq!([0, 2, 20].map(limit), [1, 2, 5]);
    }
}
