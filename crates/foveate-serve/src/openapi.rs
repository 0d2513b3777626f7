//! The OpenAPI document of this server.

use serde_json::{Value, json};

use crate::serving::Serving;

/// `openapi.json` with this server's version, model, tasks and limits.
pub(crate) fn document(serving: &Serving) -> String {
    let mut document: Value = serde_json::from_str(include_str!("../openapi.json"))
        .unwrap_or_else(|error| unreachable!("a test reads it: {error}"));
    document["info"]["version"] = json!(env!("CARGO_PKG_VERSION"));
    let schemas = &mut document["components"]["schemas"];
    schemas["Images"]["maxItems"] = json!(serving.api.max_images);
    schemas["Upload"]["properties"]["image"]["maxItems"] = json!(serving.api.max_images);
    schemas["Model"]["enum"] = json!(serving.api.models);
    schemas["Task"]["enum"] = json!(serving.api.engine.tasks().collect::<Vec<_>>());
    match serving.api.dimensions {
        Some(width) => schemas["Dimensions"]["enum"] = json!([width, null]),
        None => remove(&mut schemas["Request"]["properties"], "dimensions"),
    }
    if serving.api.queue.is_none() {
        remove(&mut schemas["Request"]["properties"], "callback");
        remove(&mut document["paths"]["/v1/embeddings"]["post"]["responses"], "202");
    }
    if !serving.needs_key() {
        for (path, method) in [("/v1/embeddings", "post"), ("/v1/models", "get"), ("/v1/models/{model}", "get")] {
            let operation = &mut document["paths"][path][method];
            remove(operation, "security");
            remove(&mut operation["responses"], "401");
        }
    }
    document.to_string()
}

fn remove(object: &mut Value, key: &str) {
    let removed = object.as_object_mut().and_then(|object| object.remove(key));
    debug_assert!(removed.is_some(), "{key} is not in openapi.json");
}
