//! URLs: `memcached://host[:port]`.

use lock_core::{Error, Phase};

use crate::address::Address;

/// The server that a URL names.
pub(crate) fn parse(url: &str) -> Result<Address, Error> {
    let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong("it does not begin with memcached://"))?;
    if scheme != "memcached" {
        return Err(wrong("its scheme is not memcached"));
    }
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    if host.contains('@') {
        return Err(wrong("users and passwords are not supported: the client speaks the plain protocol"));
    }
    if host.contains(',') {
        return Err(wrong("a lock lives on one server: with several, a change of their list would move it"));
    }
    if !path.is_empty() || host.contains(['?', '#']) {
        return Err(wrong("nothing follows the port"));
    }
    Address::parse(host).map_err(wrong)
}

/// An error without a word of the URL itself: any part of it may be a misplaced password.
fn wrong(what: &'static str) -> Error {
    Error::invalid(Phase::Configure, format!("the URL is wrong: {what}")).with_backend(crate::guarantees::NAME)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_one_server() {
        for (url, address) in [
            ("memcached://cache", "cache:11211"),
            ("memcached://10.0.0.1:7/", "10.0.0.1:7"),
            ("memcached://[::1]", "[::1]:11211"),
            ("memcached://[::1]:7", "[::1]:7"),
        ] {
            assert_eq!(parse(url).unwrap().to_string(), address);
        }
    }

    #[test]
    fn what_is_wrong_is_said_without_the_url() {
        for (url, what) in [
            ("s3cret", "begin with"),
            ("redis://s3cret", "scheme"),
            ("memcached://me:s3cret@a", "users and passwords"),
            ("memcached://a,s3cret", "one server"),
            ("memcached://a/s3cret", "nothing follows"),
            ("memcached://a:s3cret", "port"),
            ("memcached://[s3cret", "]"),
            ("memcached://[::1]s3cret", "follows the ]"),
            ("memcached://a:0", "port"),
            ("memcached://a:+7", "port"),
            ("memcached://", "host"),
        ] {
            let error = parse(url).unwrap_err().to_string();
            assert!(error.contains(what) && !error.contains("s3cret"), "{url}: {error}");
        }
    }
}
