//! A TCP proxy that knows the frames of its protocol, so that a fault can be aimed at one request or its reply.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use lock_testkit_proxy::{Direction, LinkFault, Protocol, Proxy, Toxic, Trigger};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let link = Proxy::to("127.0.0.1:6379", Protocol::Resp)?;
//! // A client connects to `link.address()`. The reply to its second EVALSHA is lost with the connection:
//! let fault = LinkFault::new(Toxic::Reset, Direction::ToClient)
//!     .on(Trigger::OnRequest { nth: 2, containing: "EVALSHA".to_owned() });
//! let injected = link.inject(fault);
//! injected.applied(Duration::from_secs(5)).await.map_err(|unproven| unproven.to_string())?;
//! # Ok(())
//! # }
//! ```
//! A proxy is one link: give each client under test its own. It works on a thread of its own, so a test that blocks its
//! threads does not hold up the traffic. What a fault does is told with [`Toxic`]; when it begins, with [`Trigger`].

#![forbid(unsafe_code)]

mod active;
mod connection;
mod ending;
mod fault;
mod frames;
mod injected;
mod joint;
mod link;
mod listener;
mod parcel;
pub mod ports;
mod proxy;
mod reader;
mod replies;
mod rng;
mod writer;

pub use fault::{Direction, LinkFault, Toxic, Trigger};
pub use frames::Protocol;
pub use injected::{Effect, Injected, Proof, Unproven};
pub use proxy::Proxy;
pub use rng::SeededRng;
