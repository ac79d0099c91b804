//! Both ends of a link, in the hands of a test.

use std::io;
use std::time::Duration;

use lock_testkit_proxy::{Protocol, Proxy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub(crate) const PROMPTLY: Duration = Duration::from_secs(10);
/// The time in which nothing must happen.
pub(crate) const A_WHILE: Duration = Duration::from_millis(60);

/// A link whose server is the test itself.
pub(crate) struct Ends {
    pub(crate) proxy: Proxy,
    listener: TcpListener,
}

impl Ends {
    pub(crate) async fn new(protocol: Protocol) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Proxy::to(listener.local_addr().unwrap().to_string(), protocol).unwrap();
        Self { proxy, listener }
    }

    /// Both ends of a new connection, over which something has gone in both directions.
    pub(crate) async fn connection(&self) -> (TcpStream, TcpStream) {
        let mut client = TcpStream::connect(self.proxy.address()).await.unwrap();
        let mut server = self.accept().await;
        says(&mut client, b"+hello\r\n").await;
        hears(&mut server, b"+hello\r\n").await;
        says(&mut server, b"+welcome\r\n").await;
        hears(&mut client, b"+welcome\r\n").await;
        (client, server)
    }

    pub(crate) async fn accept(&self) -> TcpStream {
        soon(self.listener.accept()).await.unwrap().0
    }

    /// That nobody connects for a while.
    pub(crate) async fn nobody_comes(&self) {
        assert!(tokio::time::timeout(A_WHILE, self.listener.accept()).await.is_err(), "somebody came");
    }
}

pub(crate) async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PROMPTLY, future).await.expect("not in time")
}

pub(crate) async fn says(end: &mut TcpStream, what: &[u8]) {
    soon(end.write_all(what)).await.unwrap();
}

#[track_caller]
pub(crate) fn hears(end: &mut TcpStream, what: &[u8]) -> impl Future<Output = ()> {
    let caller = std::panic::Location::caller();
    let what = what.to_vec();
    async move {
        let mut heard = vec![0; what.len()];
        soon(end.read_exact(&mut heard)).await.unwrap_or_else(|error| panic!("{caller}: {error}"));
        assert_eq!(String::from_utf8_lossy(&heard), String::from_utf8_lossy(&what), "{caller}");
    }
}

pub(crate) async fn hears_nothing(end: &mut TcpStream) {
    let heard = tokio::time::timeout(A_WHILE, end.read_u8()).await;
    assert!(heard.is_err(), "heard {heard:?}");
}

/// Returns the end of a connection: in order, or by a reset.
pub(crate) async fn ending(end: &mut TcpStream) -> Result<(), io::ErrorKind> {
    let mut rest = Vec::new();
    match soon(end.read_to_end(&mut rest)).await {
        Ok(_) if rest.is_empty() => Ok(()),
        Ok(_) => panic!("heard {:?} before the end", String::from_utf8_lossy(&rest)),
        Err(error) => Err(error.kind()),
    }
}
