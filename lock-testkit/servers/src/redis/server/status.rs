//! A server's own account of itself.

use lock_testkit::HarnessError;

use super::RedisServer;

impl RedisServer {
    /// The server's part in replication: `master` or `slave`.
    pub(in crate::redis) async fn role(&self) -> Result<String, HarnessError> {
        self.info("replication", "role").await
    }

    /// An error unless this is a replica of the server at `host:port`, and its link is up.
    pub(in crate::redis) async fn follows(&self, master: &str) -> Result<(), HarnessError> {
        let replication = self.client()?.command(&["INFO", "replication"]).await?.to_string();
        let says = |name| field(&replication, name).unwrap_or_default();
        let followed = format!("{}:{}", says("master_host"), says("master_port"));
        match says("master_link_status") {
            "up" if followed == master => Ok(()),
            status => {
                let link = format!("follows {followed} and its link is {status:?}");
                Err(HarnessError::new(format!("the replica {} {link}, not {master} and up", self.address())))
            }
        }
    }

    /// A field of a section of `INFO`.
    ///
    /// # Errors
    /// If the server does not answer, or knows no such field.
    pub async fn info(&self, section: &str, name: &str) -> Result<String, HarnessError> {
        let info = self.client()?.command(&["INFO", section]).await?.to_string();
        let missing = || HarnessError::new(format!("{} says no {name} in its {section}", self.address()));
        field(&info, name).map(str::to_owned).ok_or_else(missing)
    }
}

/// A field in a text of lines like `name:value`.
pub(in crate::redis) fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let info = "# Replication\r\nrole_of:x\r\nrole:slave\r\nmaster_host:127.0.0.1\r\n";
        assert_eq!(field(info, "role"), Some("slave"));
        assert_eq!(field(info, "master"), None);
    }
}
