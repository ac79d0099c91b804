//! The opening of a session: the servers, the credentials, and the rights to what it makes.

use std::time::Duration;

#[cfg(feature = "sasl")]
use zookeeper_client::SaslOptions;
use zookeeper_client::{Acl, AuthId, Client, Connector, Permission};

#[cfg(feature = "tls")]
use super::tls;
use super::{Failure, Fate};
use crate::access::{Access, Credentials};
use crate::client::ConnectOptions;

/// The shortest silence of a server after which its connection is given up, where the session allows it.
const STARVED: Duration = Duration::from_secs(1);

/// The number of times that the address of the only server is given. The crate tries each address once without a pause, then
/// again with pauses that grow by 50 ms, and doubles its pause after the last one without a limit: 16 tries at once, and 16
/// more that are over after 7.5 s, with 1.1 s between two of them at most. Of several servers each is given once: to try a
/// silent one twice in a row would cost its timeout twice.
const TRIES: usize = 16;

/// The number of silences after which the opening of a session by the only server is given up.
const SILENCES: u32 = 2;

/// Opens a session with one of the servers.
pub(super) async fn open(options: &ConnectOptions) -> Result<Client, Failure> {
    // A hung server is to be left soon enough for another one to keep the session; a starved one is not hung.
    let silence = (options.timeout / 5).max(STARVED.min(options.timeout * 2 / 5));
    let connector = Client::connector().with_session_timeout(options.timeout).with_connection_timeout(silence);
    // Each address is tried once; whoever asks for a session tries again.
    let connector = connector.with_fail_eagerly();
    let connector = with_credentials(connector, options.credentials.as_ref());
    let target = format!("{}{}", addresses(options), options.chroot);
    let opened = async {
        match &options.tls {
            #[cfg(feature = "tls")]
            Some(certificates) => tls::connect(connector, certificates, &target).await,
            // Without the feature, TLS was refused with the configuration.
            _ => Ok(connector.connect(&target).await?),
        }
    };
    if !is_only(options) {
        return opened.await;
    }
    // A server that is silent is not to be tried as often as one that refuses.
    let silent = |_| Err(Failure { fate: Fate::Unknown, source: "the server opened no session in time".into() });
    tokio::time::timeout(silence * SILENCES, opened).await.unwrap_or_else(silent)
}

/// Whether there is one server only.
fn is_only(options: &ConnectOptions) -> bool {
    !options.servers.contains(',')
}

/// Returns the servers, as the crate is to try them.
fn addresses(options: &ConnectOptions) -> String {
    if is_only(options) { vec![&*options.servers; TRIES].join(",") } else { options.servers.clone() }
}

/// Returns a connector that shows these credentials on every connection.
fn with_credentials(connector: Connector, credentials: Option<&Credentials>) -> Connector {
    match credentials {
        Some(Credentials::Digest { user, password }) => {
            connector.with_auth("digest", format!("{user}:{password}").as_bytes())
        }
        #[cfg(feature = "sasl")]
        Some(Credentials::Sasl { user, password }) => {
            connector.with_sasl(SaslOptions::digest_md5(user.clone(), password.clone()))
        }
        // Without the feature, SASL was refused with the configuration.
        _ => connector,
    }
}

/// Returns the rights to what is made.
pub(super) fn acl(access: &Access) -> Vec<Acl> {
    let all = |who| Acl::new(Permission::ALL, who);
    match access {
        Access::Everybody => vec![all(AuthId::anyone())],
        Access::Creator => vec![all(AuthId::authed())],
        Access::Only(identities) => identities.iter().map(|(scheme, id)| all(AuthId::new(scheme, id))).collect(),
    }
}
