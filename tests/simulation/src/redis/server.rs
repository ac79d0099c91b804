//! The state that the connections to a server share, and the requests of each of them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{Notify, mpsc};

use super::bytes::Bytes;
use super::commands;
use super::resp::{self, Value};
use super::scripts::Scripts;
use super::store::Store;

/// A server's process: its data outlive it if they are kept elsewhere.
pub struct Server {
    scripts: RefCell<Scripts>,
    store: Rc<RefCell<Store>>,
    clients: RefCell<Clients>,
}

#[derive(Default)]
struct Clients {
    last: u64,
    alive: BTreeMap<u64, Client>,
}

struct Client {
    /// The address that it came from.
    address: String,
    outgoing: mpsc::UnboundedSender<Bytes>,
    killed: Rc<Notify>,
    channels: Vec<Bytes>,
}

impl Server {
    /// A server with these data.
    ///
    /// # Errors
    /// If Lua has no memory.
    pub fn new(store: Rc<RefCell<Store>>) -> mlua::Result<Rc<Self>> {
        let scripts = RefCell::new(Scripts::new(store.clone())?);
        Ok(Rc::new(Self { scripts, store, clients: RefCell::default() }))
    }

    /// The answer to a command that comes over no connection, at this time of the server's clock, in µs since the epoch.
    #[must_use]
    pub fn command(&self, command: &[Bytes], now: u64) -> Value {
        self.store.borrow_mut().now = now;
        self.answer(0, command)
    }

    /// Serves one connection, from this address, until it ends or is killed; `now` is the server's clock, in µs since the
    /// epoch.
    ///
    /// # Errors
    /// If the connection breaks, or does not keep to the protocol.
    pub async fn serve<S>(&self, stream: S, address: SocketAddr, now: impl Fn() -> u64) -> io::Result<()>
    where
        S: AsyncRead + AsyncWrite,
    {
        let (reader, mut writer) = tokio::io::split(stream);
        let (outgoing, mut written) = mpsc::unbounded_channel();
        let killed = Rc::new(Notify::new());
        let client = Client {
            address: address.to_string(),
            outgoing: outgoing.clone(),
            killed: killed.clone(),
            channels: Vec::new(),
        };
        let connection = Connection { server: self, id: self.enter(client) };
        let mut reader = BufReader::new(reader);
        let read = async {
            while let Some(command) = resp::read(&mut reader).await? {
                self.store.borrow_mut().now = now();
                let mut bytes = Vec::new();
                self.answer(connection.id, &command).write(&mut bytes);
                if outgoing.send(bytes).is_err() {
                    break;
                }
                self.publish();
            }
            Ok(())
        };
        let write = async {
            while let Some(bytes) = written.recv().await {
                writer.write_all(&bytes).await?;
            }
            Ok(())
        };
        tokio::select! {
            biased;
            () = killed.notified() => Ok(()),
            outcome = read => outcome,
            outcome = write => outcome,
        }
    }

    fn enter(&self, client: Client) -> u64 {
        let mut clients = self.clients.borrow_mut();
        clients.last += 1;
        let id = clients.last;
        clients.alive.insert(id, client);
        id
    }

    fn answer(&self, id: u64, command: &[Bytes]) -> Value {
        let name = command.first().map_or(Vec::new(), |name| name.to_ascii_uppercase());
        match (&*name, &command[1.min(command.len())..]) {
            (b"EVAL", [code, rest @ ..]) => {
                let loaded = self.scripts.borrow_mut().load(code);
                loaded.map_or_else(|error| error, |digest| self.evaluate(&digest, rest))
            }
            (b"SCRIPT", [_, code]) => self.scripts.borrow_mut().load(code).map_or_else(|error| error, Value::text),
            (b"EVALSHA", [digest, rest @ ..]) => self.evaluate(&String::from_utf8_lossy(digest), rest),
            (b"SUBSCRIBE", [channel]) => self.subscribe(id, channel),
            (b"CLIENT", [what, rest @ ..]) => self.about_clients(id, what, rest),
            (b"SELECT" | b"PING", _) => Value::Status("OK"),
            _ => commands::carry_out(&mut self.store.borrow_mut(), command),
        }
    }

    fn evaluate(&self, digest: &str, rest: &[Bytes]) -> Value {
        let count = rest.first().and_then(|count| std::str::from_utf8(count).ok()?.parse::<usize>().ok());
        let Some((keys, args)) = count.and_then(|count| rest[1..].split_at_checked(count)) else {
            return Value::Error("ERR Number of keys can't be greater than number of args".to_owned());
        };
        {
            let mut store = self.store.borrow_mut();
            store.most_keys = store.most_keys.max(keys.len());
        }
        let answer = self.scripts.borrow_mut().run(digest, keys, args);
        answer.unwrap_or_else(|| Value::Error("NOSCRIPT No matching script. Please use EVAL.".to_owned()))
    }

    fn subscribe(&self, id: u64, channel: &Bytes) -> Value {
        if let Some(client) = self.clients.borrow_mut().alive.get_mut(&id) {
            client.channels.push(channel.clone());
        }
        self.count_listeners();
        Value::Many(vec![Value::text("subscribe"), Value::text(channel), Value::Number(1)])
    }

    fn about_clients(&self, id: u64, what: &[u8], rest: &[Bytes]) -> Value {
        let mut clients = self.clients.borrow_mut();
        match (&*what.to_ascii_uppercase(), rest) {
            (b"INFO", _) => {
                let address = clients.alive.get(&id).map_or("", |client| &client.address);
                Value::text(format!("id={id} addr={address} laddr=server:6379"))
            }
            // A server that was restarted counts anew: only with the address an id is one client's.
            (b"KILL", [_, id, _, address, ..]) => {
                let id = std::str::from_utf8(id).ok().and_then(|id| id.parse().ok()).unwrap_or_default();
                let is_meant = clients.alive.get(&id).is_some_and(|client| client.address.as_bytes() == address);
                let killed = if is_meant { clients.alive.remove(&id) } else { None };
                killed.iter().for_each(|client| client.killed.notify_one());
                drop(clients);
                self.count_listeners();
                Value::Number(i64::from(is_meant))
            }
            _ => Value::Status("OK"),
        }
    }

    /// Has the store know who listens: `PUBLISH` answers with their number.
    fn count_listeners(&self) {
        let clients = self.clients.borrow();
        self.store.borrow_mut().listened =
            clients.alive.values().flat_map(|client| &client.channels).cloned().collect();
    }

    /// Tells the listeners what was published.
    fn publish(&self) {
        let published = std::mem::take(&mut self.store.borrow_mut().published);
        let clients = self.clients.borrow();
        for (channel, message) in published {
            let mut bytes = Vec::new();
            let parts = vec![Value::text("message"), Value::text(&channel), Value::text(message)];
            Value::Many(parts).write(&mut bytes);
            for client in clients.alive.values().filter(|client| client.channels.contains(&channel)) {
                // Its connection may have ended.
                let _ = client.outgoing.send(bytes.clone());
            }
        }
    }
}

/// A connection, which is one of the clients until it is dropped.
struct Connection<'a> {
    server: &'a Server,
    id: u64,
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        self.server.clients.borrow_mut().alive.remove(&self.id);
        self.server.count_listeners();
    }
}
