//! `/atoll/v1/pools`: warm pools, declared by the operator.

use atoll_control::{Pool, PoolStatus};
use atoll_core::{Error, ErrorKind, Result, TenantId};
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde_json::{Value, json};

use super::NativeError;
use crate::app::App;

/// Pools are the whole installation's, so one tenant alone may touch them.
fn require_operator(app: &App, tenant: &TenantId) -> Result<()> {
    if *tenant == app.operator {
        return Ok(());
    }
    let operator = &app.operator;
    let message = format!("pools belong to the operator; use an API key of tenant {operator}");
    Err(Error::new(ErrorKind::Forbidden, message))
}

fn shown(status: &PoolStatus) -> Value {
    let origin = status.pool.spec.template.as_ref();
    let template = origin.map(|origin| origin.alias.as_ref().unwrap_or(&origin.id));
    json!({
        "name": status.pool.name,
        "template": template,
        "size": status.pool.size,
        "ready": status.ready,
        "starting": status.starting,
        "waiting": status.waiting,
        "hits": status.hits,
        "replaced": status.replaced,
        "misses": status.misses,
        "trouble": status.trouble,
    })
}

/// All pools and how they do.
pub(super) async fn list(
    State(app): State<App>,
    Extension(tenant): Extension<TenantId>,
) -> Result<Json<Value>, NativeError> {
    require_operator(&app, &tenant)?;
    let pools: Vec<_> = app.pools.pools().await.iter().map(shown).collect();
    Ok(Json(json!({"pools": pools})))
}

/// Declares or changes a pool, at the newest build of its template.
pub(super) async fn set(
    State(app): State<App>,
    Extension(tenant): Extension<TenantId>,
    Path(name): Path<String>,
    body: Bytes,
) -> Result<Json<Value>, NativeError> {
    require_operator(&app, &tenant)?;
    let body: Value = serde_json::from_slice(&body).map_err(|error| {
        Error::invalid("body", format!("write {{\"template\": …, \"size\": …}}: {error}"))
    })?;
    let template = body["template"].as_str().ok_or_else(|| {
        Error::invalid("template", "write the name of a template, such as \"base\"")
    })?;
    let size = body["size"].as_u64().and_then(|size| usize::try_from(size).ok());
    let size =
        size.ok_or_else(|| Error::invalid("size", "write how many sandboxes to keep ready"))?;
    let spec = app.templates.resolve(&tenant, template).await?;
    app.pools.set_pool(Pool { name: name.clone(), spec, size }).await?;
    let all = app.pools.pools().await;
    let status = all.iter().find(|status| status.pool.name == name);
    let status = status.ok_or_else(|| Error::conflict(format!("pool {name} was removed again")))?;
    Ok(Json(shown(status)))
}

/// Forgets a pool.
pub(super) async fn remove(
    State(app): State<App>,
    Extension(tenant): Extension<TenantId>,
    Path(name): Path<String>,
) -> Result<StatusCode, NativeError> {
    require_operator(&app, &tenant)?;
    app.pools.remove_pool(&name).await?;
    Ok(StatusCode::NO_CONTENT)
}
