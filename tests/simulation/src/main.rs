//! The simulated Redis as a program: prints its URL, and serves until its standard input ends. For the conformance suite
//! of `lock-redis`, which then says whether the simulation is of the right thing; see `scripts/simulation`.

use std::cell::RefCell;
use std::error::Error;
use std::rc::Rc;
use std::time::SystemTime;

use simulation::redis::server::Server;
use simulation::redis::store::Store;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::task::{LocalSet, spawn_local};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("redis://{}", listener.local_addr()?);
    let (tasks, mut input, mut said) = (LocalSet::new(), tokio::io::stdin(), Vec::new());
    tokio::select! {
        outcome = tasks.run_until(serve(listener)) => outcome,
        _ = input.read_to_end(&mut said) => Ok(()),
    }
}

async fn serve(listener: TcpListener) -> Result<(), Box<dyn Error>> {
    let server = Server::new(Rc::new(RefCell::new(Store::default())))?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let server = server.clone();
        spawn_local(async move {
            if let Err(error) = server.serve(stream, now).await {
                eprintln!("a connection broke: {error}");
            }
        });
    }
}

/// µs since the epoch; a clock before it stands still.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
