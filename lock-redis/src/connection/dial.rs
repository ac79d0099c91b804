//! Opens connections to one server.

use std::time::Duration;

use lock_core::Error;
use redis::aio::{MultiplexedConnection, PubSub};
use redis::io::tcp::{TcpSettings, socket2};
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo, RedisResult};

use crate::error;

/// How long one attempt to connect may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// How many requests may queue for the wire before further ones wait for a place.
const PIPELINE: usize = 1024;

/// A server's address and credentials.
#[derive(Debug)]
pub(crate) struct Dial {
    client: Client,
    pub(crate) op_timeout: Duration,
    /// Host, port and database, without credentials.
    pub(crate) server: String,
}

impl Dial {
    pub(crate) fn new(url: &str, op_timeout: Duration) -> Result<Self, Error> {
        let no_server = |e| error::of_connect(e, "(no valid URL)");
        let info = url.into_connection_info().map_err(no_server)?;
        let server = match info.addr() {
            ConnectionAddr::Tcp(host, port) => format!("{host}:{port}/{}", info.redis_settings().db()),
            _ => {
                let what = "only redis://host:port URLs are supported yet";
                let kind = lock_core::ErrorKind::Unsupported;
                return Err(Error::new(kind, lock_core::Phase::Connect, what).with_backend(crate::NAME));
            }
        };
        // A peer that vanished without a word is noticed by the kernel: when idle by keep-alive probes, and when
        // something was sent by the lack of an acknowledgement.
        let keepalive = socket2::TcpKeepalive::new()
            .with_time(Duration::from_secs(5))
            .with_interval(Duration::from_secs(1))
            .with_retries(3);
        let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
        #[cfg(target_os = "linux")]
        let tcp = tcp.set_user_timeout(op_timeout.max(Duration::from_secs(1)) * 2);
        let client = Client::open(info.set_tcp_settings(tcp)).map_err(no_server)?;
        Ok(Self { client, op_timeout, server })
    }

    /// A connection for commands.
    pub(crate) async fn commands(&self) -> RedisResult<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(self.op_timeout))
            .set_pipeline_buffer_size(PIPELINE);
        self.client.get_multiplexed_async_connection_with_config(&config).await
    }

    /// A connection that only listens, to this channel.
    pub(crate) async fn pushes(&self, channel: &str) -> RedisResult<PubSub> {
        let subscribe = async {
            let mut connection = self.client.get_async_pubsub().await?;
            connection.subscribe(channel).await?;
            Ok(connection)
        };
        let late = |_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into());
        tokio::time::timeout(CONNECT_TIMEOUT, subscribe).await.unwrap_or_else(late)
    }
}
