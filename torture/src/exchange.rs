//! Questions of workers to the run, and its answers: one JSON a line.

use std::io;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// Answers as long as the runtime lives; returns where.
pub(crate) async fn serve<Q, A>(answer: impl Fn(Q) -> A + Send + Sync + 'static) -> io::Result<SocketAddr>
where
    Q: DeserializeOwned + Send + 'static,
    A: Serialize + Send + 'static,
{
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    let answer = Arc::new(answer);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // A worker that is killed leaves its connection in the middle.
            let answer = answer.clone();
            tokio::spawn(async move { converse(stream, &*answer).await });
        }
    });
    Ok(address)
}

async fn converse<Q: DeserializeOwned, A: Serialize>(stream: TcpStream, answer: &impl Fn(Q) -> A) -> io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut lines = BufReader::new(read).lines();
    while let Some(line) = lines.next_line().await? {
        let mut line = serde_json::to_vec(&answer(serde_json::from_str(&line)?))?;
        line.push(b'\n');
        write.write_all(&line).await?;
    }
    Ok(())
}

/// A worker's way to the run.
pub(crate) struct Client<Q, A> {
    lines: tokio::io::Lines<BufReader<OwnedReadHalf>>,
    write: OwnedWriteHalf,
    types: PhantomData<fn(Q) -> A>,
}

impl<Q: Serialize, A: DeserializeOwned> Client<Q, A> {
    pub(crate) async fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (read, write) = stream.into_split();
        Ok(Self { lines: BufReader::new(read).lines(), write, types: PhantomData })
    }

    pub(crate) async fn ask(&mut self, question: &Q) -> io::Result<A> {
        let mut line = serde_json::to_vec(question)?;
        line.push(b'\n');
        self.write.write_all(&line).await?;
        let answer = self.lines.next_line().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(serde_json::from_str(&answer)?)
    }
}
