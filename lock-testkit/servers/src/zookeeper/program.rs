//! The program that is started.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use lock_testkit::Missing;

use crate::path::on_path;

/// The variable that says where Java finds ZooKeeper, instead of in Debian's jars: a class path, such as
/// `apache-zookeeper-3.9.4-bin/lib/*`.
pub const CLASS_PATH_VARIABLE: &str = "LOCK_TESTKIT_ZOOKEEPER_CLASS_PATH";

const JARS: &str = "/usr/share/java";
/// The jar's manifest names most of what it needs; the others are the log and what only a server with TLS needs.
const NAMES: &[&str] =
    &["zookeeper", "slf4j-simple", "netty-codec", "netty-resolver", "netty-transport-native-unix-common"];
const MAIN: &str = "org.apache.zookeeper.server.quorum.QuorumPeerMain";

/// Java, and where it finds ZooKeeper.
#[derive(Debug, Clone)]
pub(super) struct Program {
    java: PathBuf,
    class_path: OsString,
}

impl Program {
    /// The one that is to be used.
    pub(super) fn find() -> Result<Self, Missing> {
        let class_path = std::env::var_os(CLASS_PATH_VARIABLE).or_else(debian);
        let (Some(java), Some(class_path)) = (on_path(&["java"]), class_path) else {
            return Err(Missing::new("ZooKeeper is not installed (Debian package zookeeper), and no URL is given"));
        };
        Ok(Self { java, class_path })
    }

    /// The command line of a server with this configuration, with these options of Java's.
    pub(super) fn command(&self, java_options: &[OsString], configuration: &Path) -> Vec<OsString> {
        let mut command = vec![self.java.clone().into()];
        command.extend_from_slice(java_options);
        command.extend(["-cp".into(), self.class_path.clone(), MAIN.into(), configuration.into()]);
        command
    }
}

/// The class path of Debian's package, if it is installed.
fn debian() -> Option<OsString> {
    let jars: Vec<_> = NAMES.iter().map(|name| Path::new(JARS).join(format!("{name}.jar"))).collect();
    jars.first()?.is_file().then(|| std::env::join_paths(jars).ok())?
}
