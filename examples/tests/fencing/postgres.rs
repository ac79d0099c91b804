//! A row that carries its fence, in PostgreSQL.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lock_core::FencingToken;
use lock_testkit::Missing;
use lock_testkit::processes::fresh_directory;
use lock_testkit::testing::{eventually, installed};
use tokio_postgres::{Client, NoTls};

use crate::{Resource, SharedResource, refuses_the_late_writer, serves_readers_together_and_refuses_who_is_late};

const TABLE: &str = "CREATE TABLE orders (id bigint PRIMARY KEY, state text NOT NULL, fence bigint NOT NULL DEFAULT 0)";
const READ: &str = "UPDATE orders SET fence = $1 WHERE id = $2 AND fence <= $1 RETURNING state";
const WRITE: &str = "UPDATE orders SET fence = $1, state = $3 WHERE id = $2 AND fence <= $1";

const SHARED_TABLE: &str = "CREATE TABLE configs (id bigint PRIMARY KEY, state text NOT NULL, fence bigint NOT NULL DEFAULT 0, read_fence bigint NOT NULL DEFAULT 0)";
const SHARED_READ: &str =
    "UPDATE configs SET read_fence = greatest(read_fence, $1) WHERE id = $2 AND fence <= $1 RETURNING state";
const SHARED_WRITE: &str =
    "UPDATE configs SET fence = $1, state = $3 WHERE id = $2 AND fence <= $1 AND read_fence <= $1";

/// The order 42, through one connection.
struct Row(Client);

impl Resource for Row {
    async fn read(&mut self, token: FencingToken) -> Option<String> {
        let rows = self.0.query(READ, &[&fence(token), &42_i64]).await.unwrap();
        rows.first().map(|row| row.get("state"))
    }

    async fn write(&mut self, token: FencingToken, state: &str) -> bool {
        self.0.execute(WRITE, &[&fence(token), &42_i64, &state]).await.unwrap() == 1
    }
}

/// The config 42.
struct SharedRow(Client);

impl SharedResource for SharedRow {
    async fn read(&mut self, token: FencingToken) -> Option<String> {
        let rows = self.0.query(SHARED_READ, &[&fence(token), &42_i64]).await.unwrap();
        rows.first().map(|row| row.get("state"))
    }

    async fn write(&mut self, token: FencingToken, state: &str) -> bool {
        self.0.execute(SHARED_WRITE, &[&fence(token), &42_i64, &state]).await.unwrap() == 1
    }
}

/// A token is below 2^53.
fn fence(token: FencingToken) -> i64 {
    token.as_u64().try_into().unwrap()
}

#[tokio::test]
async fn a_row_in_postgresql_refuses_the_late_writer() {
    let Some(server) = installed(Postgres::start()) else { return };
    let first = server.connect().await;
    first.batch_execute(TABLE).await.unwrap();
    first.execute("INSERT INTO orders (id, state) VALUES (42, 'new')", &[]).await.unwrap();
    refuses_the_late_writer(async || Row(server.connect().await)).await;
}

#[tokio::test]
async fn a_row_in_postgresql_serves_readers_together_and_refuses_who_is_late() {
    let Some(server) = installed(Postgres::start()) else { return };
    let client = server.connect().await;
    client.batch_execute(SHARED_TABLE).await.unwrap();
    client.execute("INSERT INTO configs (id, state) VALUES (42, 'new')", &[]).await.unwrap();
    serves_readers_together_and_refuses_who_is_late(SharedRow(client)).await;
}

/// Starts the server that is its arguments, and ends it, and removes its directory, when the standard input ends: also when the
/// test is killed.
const KEEPER: &str = r#""$@" >"$0/output" 2>&1 </dev/null & read -r _; kill -INT $!; wait $!; rm -rf "$0""#;

/// A server of the test's own, which listens on a socket in its own directory.
struct Postgres {
    directory: PathBuf,
    keeper: Child,
}

impl Postgres {
    fn start() -> Result<Self, Missing> {
        let broken =
            |error: std::io::Error| Missing::from(lock_testkit::HarnessError::new(format!("postgres: {error}")));
        let programs = programs().ok_or_else(|| Missing::new("no PostgreSQL server: apt-get install postgresql"))?;
        let directory = fresh_directory("postgres").map_err(broken)?;
        // It refuses to run as root, and its package brings a user.
        let as_user: &[&str] = if rustix::process::geteuid().is_root() {
            let owned = Command::new("chown").arg("postgres").arg(&directory).status().map_err(broken)?;
            assert!(owned.success(), "there is no user postgres");
            &["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        } else {
            &[]
        };
        let data = directory.join("data");
        let command = |program: &str| {
            let program = programs.join(program).into_os_string();
            let mut words = as_user.iter().map(|word| (*word).into()).chain([program]);
            let mut command = Command::new(words.next().unwrap_or_default());
            command.args(words).current_dir(&directory);
            command
        };
        let mut made = command("initdb");
        made.arg("-D").arg(&data).args(["-U", "test", "-A", "trust", "--no-sync"]);
        let made = made.output().map_err(broken)?;
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        let server = command("postgres");
        let mut keeper = Command::new("sh");
        keeper.arg("-c").arg(KEEPER).arg(&directory).arg(server.get_program()).args(server.get_args());
        keeper.arg("-D").arg(&data).arg("-k").arg(&directory).args(["-c", "listen_addresses=", "-c", "fsync=off"]);
        let keeper = keeper.current_dir(&directory).stdin(Stdio::piped()).spawn().map_err(broken)?;
        Ok(Self { directory, keeper })
    }

    /// A connection, as soon as the server takes one.
    async fn connect(&self) -> Client {
        let config = format!("host={} user=test dbname=postgres", self.directory.display());
        eventually("PostgreSQL takes connections", Duration::from_secs(60), async || {
            let (client, connection) = tokio_postgres::connect(&config, NoTls).await.ok()?;
            tokio::spawn(connection);
            Some(client)
        })
        .await
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Some(mut input) = self.keeper.stdin.take() {
            let _ = input.write_all(b"\n");
        }
        let _ = self.keeper.wait();
    }
}

/// The folder of the server's programs: Debian keeps one for each version.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let folders = versions.filter_map(|version| Some(version.ok()?.path().join("bin")));
    folders.filter(|folder| folder.join("postgres").exists()).max()
}
