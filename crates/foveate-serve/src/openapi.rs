//! The OpenAPI document of this server.

use serde_json::{Value, json};

use crate::serving::Serving;
use crate::similar::{MOST_K, MOST_OFFSET};

/// `openapi.json` with this server's version, model, tasks and limits.
pub(crate) fn document(serving: &Serving) -> String {
    let mut document: Value = serde_json::from_str(include_str!("../openapi.json"))
        .unwrap_or_else(|error| unreachable!("a test reads it: {error}"));
    document["info"]["version"] = json!(env!("CARGO_PKG_VERSION"));
    let schemas = &mut document["components"]["schemas"];
    schemas["Images"]["maxItems"] = json!(serving.api.max_images);
    schemas["Files"]["maxItems"] = json!(serving.api.max_images);
    if serving.api.engine.tasks().all(|task| serving.api.engine.takes_texts(task)) {
        add_texts(schemas);
    }
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
    if let Some(slot) = &serving.index {
        add_similar(&mut document, slot.current().dim(), serving.api.max_images);
    }
    if !serving.needs_key() {
        let of_index =
            [("/v1/similar", "post"), ("/v1/index/reload", "post")].into_iter().filter(|_| serving.index.is_some());
        let others = [("/v1/embeddings", "post"), ("/v1/models", "get"), ("/v1/models/{model}", "get")];
        for (path, method) in others.into_iter().chain(of_index) {
            let operation = &mut document["paths"][path][method];
            remove(operation, "security");
            remove(&mut operation["responses"], "401");
        }
    }
    document.to_string()
}

/// Describes texts, which may stand wherever images may.
fn add_texts(schemas: &mut Value) {
    let about = "A text of at most 64 KiB. As a string alone it must not look like an address or base64.";
    schemas["Text"] = json!({"type": "string", "description": about, "examples": ["a red bicycle in snow"]});
    let text = json!({"$ref": "#/components/schemas/Text"});
    let object = json!({
        "type": "object", "required": ["text"], "additionalProperties": false, "properties": {"text": text},
    });
    let part = json!({
        "type": "object", "required": ["type", "text"], "additionalProperties": false,
        "properties": {"type": {"const": "text"}, "text": text},
    });
    push(&mut schemas["Image"]["anyOf"], [text.clone(), object]);
    push(&mut schemas["Part"]["anyOf"], [part]);
    for content in ["/Content/properties/content", "/Messages/items/properties/content"] {
        if let Some(content) = schemas.pointer_mut(content) {
            *content = json!({"anyOf": [content.take(), text]});
        }
    }
    let request = &mut schemas["Request"];
    push(&mut request["anyOf"], ["text", "texts"].map(|name| json!({"required": [name]})));
    for name in ["text", "texts"] {
        request["properties"][name] = json!({"$ref": "#/components/schemas/Inputs"});
    }
}

fn push<const N: usize>(schemas: &mut Value, more: [Value; N]) {
    debug_assert!(schemas.is_array(), "{schemas}");
    schemas.as_array_mut().into_iter().for_each(|schemas| schemas.extend(more.clone()));
}

/// Describes `POST /v1/similar`, which takes what embeddings are asked with, and what the index has;
/// and how the index is read again.
fn add_similar(document: &mut Value, dim: usize, most: usize) {
    let mut path = document["paths"]["/v1/embeddings"].clone();
    let operation = &mut path["post"];
    operation["operationId"] = json!("similar");
    operation["summary"] = json!("Finds what is most like images, texts, rows and vectors in the server's index");
    let k = json!({"type": ["integer", "null"], "minimum": 1, "maximum": MOST_K, "description": "Results of a query."});
    let of_offset = "Results that are passed over, the best ones.";
    let offset = json!({"type": ["integer", "null"], "minimum": 0, "maximum": MOST_OFFSET, "description": of_offset});
    if let Some(parameters) = operation["parameters"].as_array_mut() {
        for (name, schema) in [("k", &k), ("offset", &offset)] {
            let mut schema = schema.clone();
            schema["type"] = json!("integer");
            parameters.push(json!({"name": name, "in": "query", "required": false, "schema": schema}));
        }
    }
    let json = &mut operation["requestBody"]["content"]["application/json"];
    json["schema"] = json!({"$ref": "#/components/schemas/SimilarRequest"});
    json["examples"]["row"] = json!({"value": {"id": "photos/0042.jpg", "k": 5}});
    operation["responses"]["200"]["content"]["application/json"]["schema"] =
        json!({"$ref": "#/components/schemas/Similar"});
    document["paths"]["/v1/similar"] = path;
    let problem = json!({"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}});
    let reloaded = json!({
        "type": "object", "required": ["rows", "dim", "seconds"],
        "properties": {"rows": {"type": "integer"}, "dim": {"type": "integer"}, "seconds": {"type": "number"}},
    });
    document["paths"]["/v1/index/reload"]["post"] = json!({
        "operationId": "reload", "summary": "Reads the index again, which replaces the current one as a whole",
        "security": [{"key": []}],
        "responses": {
            "200": {"description": "It was read.", "content": {"application/json": {"schema": reloaded}}},
            "401": document["paths"]["/v1/models"]["get"]["responses"]["401"],
            "409": {"description": "It is being read already.", "content": problem},
            "503": {"description": "It cannot be read, and the current one stays.", "content": problem},
        },
    });
    let schemas = &mut document["components"]["schemas"];
    let id = json!({"type": "string", "description": "The id of a row, which is not its own neighbour."});
    let number = json!({"type": "number", "minimum": -f32::MAX, "maximum": f32::MAX});
    let vector = json!({"type": "array", "minItems": dim, "maxItems": dim, "items": number});
    let value = json!({"type": ["string", "number", "boolean", "null"]});
    let values = json!({"anyOf": [value, {"type": "array", "items": value}]});
    let vectors = json!({"anyOf": [vector, {"type": "array", "maxItems": most, "items": vector}, {"type": "null"}]});
    let example = json!({"anyOf": [id, vector]});
    let examples = json!({
        "description": "All positive and negative examples are one query: the mean of the former, of length 1 each, \
                        less that of the latter. Rows among them are not in its result.",
        "anyOf": [id, vector, {"type": "array", "maxItems": most, "items": example}, {"type": "null"}],
    });
    let of_filter = "Columns of the index, each with a value or several. Only rows that have one of them are found.";
    let mut request = schemas["Request"].clone();
    let has_one = json!({"anyOf": [{"type": "string"}, {"type": "array", "minItems": 1}]});
    for name in ["id", "ids", "vector", "positive", "negative"] {
        let alternatives = request["anyOf"].as_array_mut().into_iter();
        alternatives.for_each(|all| all.push(json!({"required": [name], "properties": {name: has_one}})));
    }
    for (name, schema) in [
        ("id", json!({"anyOf": [id, {"type": "null"}]})),
        ("ids", json!({"type": ["array", "null"], "maxItems": most, "items": id})),
        ("vector", vectors),
        ("positive", examples.clone()),
        ("negative", examples),
        ("filter", json!({"type": ["object", "null"], "additionalProperties": values, "description": of_filter})),
        ("k", k),
        ("offset", offset),
    ] {
        request["properties"][name] = schema;
    }
    schemas["SimilarRequest"] = request;
    let id_and_score = json!({
        "type": "object", "required": ["id", "score"], "additionalProperties": false,
        "properties": {"id": {"type": "string"}, "score": {"type": "number"}},
    });
    let mut similar = schemas["Outcomes"].clone();
    let mut output = schemas["Output"].clone();
    output["description"] =
        json!("Of a query, best first. Images and texts come before id, ids, vector, and the examples.");
    output["properties"]["output"] = json!({"type": "array", "maxItems": MOST_K, "items": id_and_score});
    similar["properties"]["data"]["items"] = json!({"oneOf": [output, {"$ref": "#/components/schemas/Failed"}]});
    schemas["Similar"] = similar;
}

/// Removes that an object has no other fields, from a schema and those within it.
fn admit_fields(schema: &mut Value) {
    match schema {
        Value::Array(schemas) => schemas.iter_mut().for_each(admit_fields),
        Value::Object(fields) => {
            fields.remove("additionalProperties");
            fields.values_mut().for_each(admit_fields);
        }
        _ => {}
    }
}

fn remove(object: &mut Value, key: &str) {
    let removed = object.as_object_mut().and_then(|object| object.remove(key));
    debug_assert!(removed.is_some(), "{key} is not in openapi.json");
}
