//! The HTTP interface, over the daemon's socket.

use crate::explaining;
use crate::metrics;
use crate::service::{Refused, Service};
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection};
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post, put};
use axum::{Extension, Router};
use detshare_api::{ErrorBody, Explanation, PolicyChange, Status, Tenant, TenantPatch};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

/// Connections at a time.
const MOST_CONNECTIONS: usize = 64;
/// A question fits on a page.
const LONGEST_QUESTION: usize = 64 << 10;
/// How long a question may take to arrive, and an open connection to have one.
const QUESTION_LIMIT: Duration = Duration::from_secs(10);
/// How long an answer may take to be fetched once we are to end.
const LAST_ANSWER_LIMIT: Duration = Duration::from_secs(1);
/// How long we wait after the system had no room for another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// What Prometheus expects of the text.
const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// An answer that says no.
#[derive(Debug)]
struct No {
    status: StatusCode,
    body: ErrorBody,
}

impl No {
    fn new(status: StatusCode, error: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { status, body: ErrorBody { error: error.into(), hint: Some(hint.into()) } }
    }
}

impl IntoResponse for No {
    fn into_response(self) -> Response {
        (self.status, Json(self.body)).into_response()
    }
}

impl From<Refused> for No {
    fn from(refused: Refused) -> Self {
        let status = match &refused {
            Refused::NoTenant(_) => StatusCode::NOT_FOUND,
            Refused::Value { .. } | Refused::NoPolicy(_) | Refused::Aggressiveness(_) => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            Refused::PolicyNeedsMps(_) | Refused::Config(_) => StatusCode::CONFLICT,
        };
        Self::new(status, refused.to_string(), refused.hint())
    }
}

impl From<PathRejection> for No {
    fn from(rejection: PathRejection) -> Self {
        Self::new(rejection.status(), rejection.body_text(), "name a tenant by its name or pid")
    }
}

impl From<BytesRejection> for No {
    fn from(rejection: BytesRejection) -> Self {
        Self::new(rejection.status(), rejection.body_text(), "send less")
    }
}

/// Who has connected.
#[derive(Debug, Clone, Copy)]
struct Caller {
    /// Whether it has a pid here: it has none in a container that is not one of ours.
    is_seen: bool,
}

type Shared = State<Arc<Service>>;
/// Which tenant is meant.
type Who = Result<Path<String>, PathRejection>;
/// What came with a question.
type Body = Result<Bytes, BytesRejection>;

fn router(service: Arc<Service>) -> Router {
    Router::new()
        .route("/v1/status", get(status))
        .route("/v1/tenants", get(tenants))
        .route("/v1/tenants/{who}", get(tenant).patch(change))
        .route("/v1/tenants/{who}/decisions", get(explain))
        .route("/v1/policy", put(set_policy))
        .route("/v1/reload", post(reload))
        .route("/v1/shutdown", post(shutdown))
        .route("/metrics", get(metrics))
        .fallback(nowhere)
        .method_not_allowed_fallback(no_such_method)
        .layer(DefaultBodyLimit::max(LONGEST_QUESTION))
        .layer(middleware::from_fn_with_state(Arc::clone(&service), touch))
        .with_state(service)
}

async fn touch(State(service): Shared, request: Request, next: Next) -> Response {
    service.touch();
    next.run(request).await
}

async fn status(State(service): Shared, Extension(caller): Extension<Caller>) -> Json<Status> {
    Json(service.status_for(caller.is_seen))
}

async fn tenants(State(service): Shared) -> Json<Vec<Tenant>> {
    Json(service.tenants())
}

async fn tenant(State(service): Shared, who: Who) -> Result<Json<Tenant>, No> {
    Ok(Json(service.tenant(&who?)?))
}

async fn explain(State(service): Shared, who: Who) -> Result<Json<Explanation>, No> {
    Ok(Json(explaining::explain(&service, &who?).await?))
}

async fn change(State(service): Shared, who: Who, body: Body) -> Result<Json<Tenant>, No> {
    let patch: TenantPatch = read(body)?;
    Ok(Json(service.change(&who?, &patch)?))
}

async fn set_policy(
    State(service): Shared,
    Extension(caller): Extension<Caller>,
    body: Body,
) -> Result<Json<Status>, No> {
    let PolicyChange { policy, aggressiveness } = read(body)?;
    if policy.is_none() && aggressiveness.is_none() {
        let hint = "say `policy` or `aggressiveness`".to_string();
        return Err(No::new(StatusCode::BAD_REQUEST, "there is nothing to change".to_string(), hint));
    }
    if let Some(policy) = policy {
        service.set_policy(&policy)?;
    }
    if let Some(part) = aggressiveness {
        service.set_aggressiveness(part)?;
    }
    Ok(Json(service.status_for(caller.is_seen)))
}

async fn reload(State(service): Shared, Extension(caller): Extension<Caller>) -> Result<Json<Status>, No> {
    service.reload()?;
    Ok(Json(service.status_for(caller.is_seen)))
}

async fn shutdown(State(service): Shared, Extension(caller): Extension<Caller>) -> (StatusCode, Json<Status>) {
    tracing::info!("asked to end");
    service.stop();
    (StatusCode::ACCEPTED, Json(service.status_for(caller.is_seen)))
}

async fn metrics(State(service): Shared) -> Result<Response, No> {
    match metrics::encode(&service) {
        Ok(text) => Ok(([(header::CONTENT_TYPE, METRICS_TYPE)], text).into_response()),
        Err(error) => Err(No::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string(), "look at the daemon's log")),
    }
}

async fn nowhere(request: Request) -> No {
    let error = format!("there is nothing at {}", request.uri().path());
    No::new(StatusCode::NOT_FOUND, error, "are daemon and command line of the same version?")
}

async fn no_such_method(request: Request) -> No {
    let error = format!("{} cannot be done to {}", request.method(), request.uri().path());
    No::new(StatusCode::METHOD_NOT_ALLOWED, error, "are daemon and command line of the same version?")
}

fn read<T: DeserializeOwned>(body: Body) -> Result<T, No> {
    serde_json::from_slice(&body?)
        .map_err(|error| No::new(StatusCode::BAD_REQUEST, format!("the question makes no sense: {error}"), "send JSON"))
}

/// Answers for as long as it is polled; connections that are open then end by themselves when the service stops.
pub(crate) async fn serve(service: Arc<Service>, listener: UnixListener) {
    let router = router(Arc::clone(&service));
    let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be taken");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Some(caller) = caller_of(&stream) else { continue };
        let Ok(permit) = Arc::clone(&room).try_acquire_owned() else {
            tracing::warn!("there are too many connections; one was closed");
            continue;
        };
        let (service, router) = (Arc::clone(&service), router.clone().layer(Extension(caller)));
        tokio::spawn(async move {
            answer(&service, router, stream).await;
            drop(permit);
        });
    }
}

/// Who has connected, if it is our user.
fn caller_of(stream: &UnixStream) -> Option<Caller> {
    match stream.peer_cred() {
        Ok(peer) if peer.uid() == rustix::process::geteuid().as_raw() => {
            Some(Caller { is_seen: peer.pid().is_some_and(|pid| pid != 0) })
        }
        Ok(peer) => {
            tracing::warn!(user = peer.uid(), "another user's connection was closed");
            None
        }
        Err(error) => {
            tracing::warn!(%error, "it cannot be made out who has connected; the connection was closed");
            None
        }
    }
}

async fn answer(service: &Service, router: Router, stream: UnixStream) {
    let mut stopping = service.stopping();
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(QUESTION_LIMIT)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = std::pin::pin!(connection);
    // How a connection ends is the other side's affair.
    let has_ended = tokio::select! {
        _ = connection.as_mut() => true,
        _ = stopping.wait_for(|stopping| *stopping) => false,
    };
    if !has_ended {
        connection.as_mut().graceful_shutdown();
        _ = timeout(LAST_ANSWER_LIMIT, connection).await;
    }
}
