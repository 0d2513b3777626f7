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
    schemas["Files"]["maxItems"] = json!(serving.api.max_images);
    if !serving.api.strict_requests {
        let open = ["Request", "Upload", "UrlPart", "Part", "Content", "Messages", "Image"];
        open.into_iter().for_each(|name| admit_fields(&mut schemas[name]));
    }
    schemas["Model"]["enum"] = json!(serving.api.models);
    schemas["Task"]["enum"] = json!(serving.api.engine.tasks().collect::<Vec<_>>());
    match serving.api.dimensions {
        Some(width) => schemas["Dimensions"]["enum"] = json!([width, null]),
        None => {
            remove(&mut schemas["Request"]["properties"], "dimensions");
            remove(&mut schemas["Request"]["properties"], "output_dimension");
        }
    }
    if serving.api.queue.is_none() {
        remove(&mut schemas["Request"]["properties"], "callback");
        remove(&mut document["paths"]["/v1/embeddings"]["post"]["responses"], "202");
    }
    if serving.api.index.is_some() {
        add_similar(&mut document);
    }
    if !serving.needs_key() {
        let similar = serving.api.index.is_some().then_some(("/v1/similar", "post"));
        let others = [("/v1/embeddings", "post"), ("/v1/models", "get"), ("/v1/models/{model}", "get")];
        for (path, method) in others.into_iter().chain(similar) {
            let operation = &mut document["paths"][path][method];
            remove(operation, "security");
            remove(&mut operation["responses"], "401");
        }
    }
    document.to_string()
}

/// Describes `POST /v1/similar`, which takes what embeddings are asked with, except callbacks.
fn add_similar(document: &mut Value) {
    let mut path = document["paths"]["/v1/embeddings"].clone();
    let operation = &mut path["post"];
    operation["operationId"] = json!("similar");
    operation["summary"] = json!("Finds what is most like images in the server's index");
    let k = json!({
        "name": "k", "in": "query", "required": false, "description": "Similar images for each image.",
        "schema": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 10},
    });
    operation["parameters"].as_array_mut().into_iter().for_each(|parameters| parameters.push(k.clone()));
    operation["requestBody"]["content"]["application/json"]["schema"] =
        json!({"$ref": "#/components/schemas/SimilarRequest"});
    operation["responses"].as_object_mut().map(|responses| responses.remove("202"));
    operation["responses"]["200"]["content"]["application/json"]["schema"] =
        json!({"$ref": "#/components/schemas/Similar"});
    document["paths"]["/v1/similar"] = path;
    let schemas = &mut document["components"]["schemas"];
    let mut request = schemas["Request"].clone();
    request["properties"].as_object_mut().map(|properties| properties.remove("callback"));
    schemas["SimilarRequest"] = request;
    let id_and_score = json!({
        "type": "object", "required": ["id", "score"], "additionalProperties": false,
        "properties": {"id": {"type": "string"}, "score": {"type": "number"}},
    });
    let mut similar = schemas["Outcomes"].clone();
    let mut output = schemas["Output"].clone();
    output["properties"]["output"] = json!({"type": "array", "items": id_and_score});
    similar["properties"]["data"]["items"] = json!({"oneOf": [output, {"$ref": "#/components/schemas/Failed"}]});
    schemas["Similar"] = similar;
}

/// Removes that an object has no other fields, from a schema and those within it, but not from callbacks.
fn admit_fields(schema: &mut Value) {
    match schema {
        Value::Array(schemas) => schemas.iter_mut().for_each(admit_fields),
        Value::Object(fields) => {
            fields.remove("additionalProperties");
            fields.iter_mut().filter(|(name, _)| *name != "callback").for_each(|(_, schema)| admit_fields(schema));
        }
        _ => {}
    }
}

fn remove(object: &mut Value, key: &str) {
    let removed = object.as_object_mut().and_then(|object| object.remove(key));
    debug_assert!(removed.is_some(), "{key} is not in openapi.json");
}
