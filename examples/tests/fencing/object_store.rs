//! An object that carries its fence, in a store that changes it only as long as it has the `ETag` that was read (`If-Match`), as
//! S3, GCS and Azure do.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::routing::get;
use lock_core::FencingToken;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

use crate::{Resource, refuses_the_late_writer};

/// The content of the object.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Order {
    state: String,
    fence: u64,
}

/// The order 42.
struct Object {
    url: String,
    http: reqwest::Client,
}

impl Object {
    /// Changes the object, if no later token has been there: whether it was changed.
    async fn change(&self, token: FencingToken, change: impl Fn(&mut Order)) -> Option<Order> {
        loop {
            let found = self.http.get(&self.url).send().await.unwrap();
            let seen = found.headers()[header::ETAG].clone();
            let mut order: Order = serde_json::from_slice(&found.bytes().await.unwrap()).unwrap();
            if order.fence > token.as_u64() {
                return None;
            }
            order.fence = token.as_u64();
            change(&mut order);
            let body = serde_json::to_vec(&order).unwrap();
            let put = self.http.put(&self.url).header(header::IF_MATCH, seen).body(body).send().await.unwrap();
            match put.status() {
                StatusCode::PRECONDITION_FAILED => {} // somebody else has changed it since: look again
                status if status.is_success() => return Some(order),
                status => panic!("{status}"),
            }
        }
    }
}

impl Resource for Object {
    async fn read(&mut self, token: FencingToken) -> Option<String> {
        self.change(token, |_| {}).await.map(|order| order.state)
    }

    async fn write(&mut self, token: FencingToken, state: &str) -> bool {
        self.change(token, |order| order.state = state.to_owned()).await.is_some()
    }
}

#[tokio::test]
async fn an_object_behind_if_match_refuses_the_late_writer() {
    let url = store(Order { state: "new".to_owned(), fence: 0 }).await;
    refuses_the_late_writer(async || Object { url: url.clone(), http: reqwest::Client::new() }).await;
}

#[tokio::test]
async fn a_writer_that_was_paused_between_its_look_and_its_write_is_refused_by_the_store() {
    let url = store(Order { state: "new".to_owned(), fence: 0 }).await;
    let [late, next] = [1, 2].map(|token| FencingToken::new(token).unwrap());
    let http = reqwest::Client::new();
    let seen = http.get(&url).send().await.unwrap().headers()[header::ETAG].clone();
    let mut theirs = Object { url: url.clone(), http: http.clone() };
    assert!(theirs.read(next).await.is_some());
    let body = serde_json::to_vec(&Order { state: "cancelled".to_owned(), fence: late.as_u64() }).unwrap();
    let put = http.put(&url).header(header::IF_MATCH, seen).body(body).send().await.unwrap();
    assert_eq!(put.status(), StatusCode::PRECONDITION_FAILED);
    assert_eq!(theirs.read(next).await.as_deref(), Some("new"));
}

/// The store's one object, with the number of its changes.
type Stored = Arc<Mutex<(u64, Vec<u8>)>>;

/// Starts a store with this object, and returns the object's URL.
async fn store(order: Order) -> String {
    let stored: Stored = Arc::new(Mutex::new((1, serde_json::to_vec(&order).unwrap())));
    let app = Router::new().route("/orders/42", get(show).put(replace)).with_state(stored);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/orders/42", listener.local_addr().unwrap());
    tokio::spawn(axum::serve(listener, app).into_future());
    url
}

async fn show(State(stored): State<Stored>) -> (HeaderMap, Vec<u8>) {
    let (version, body) = stored.lock().unwrap().clone();
    (HeaderMap::from_iter([(header::ETAG, etag(version).parse().unwrap())]), body)
}

async fn replace(State(stored): State<Stored>, headers: HeaderMap, body: axum::body::Bytes) -> StatusCode {
    let mut stored = stored.lock().unwrap();
    if headers.get(header::IF_MATCH).is_none_or(|seen| seen.as_bytes() != etag(stored.0).as_bytes()) {
        return StatusCode::PRECONDITION_FAILED;
    }
    *stored = (stored.0 + 1, body.to_vec());
    StatusCode::OK
}

fn etag(version: u64) -> String {
    format!("\"{version}\"")
}
