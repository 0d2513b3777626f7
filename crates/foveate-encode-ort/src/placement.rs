//! The actual placement of a graph's nodes. ONNX Runtime silently runs nodes on the CPU that a provider does not
//! support; its profile of a run shows it.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

/// Operators that must not run on the CPU: parts of the names of operators that are applied to every token. Operators
/// that compute shapes and positions may.
const HEAVY: [&str; 6] = ["MatMul", "Gemm", "Conv", "Attention", "LayerNormalization", "Softmax"];
const CPU: &str = "CPUExecutionProvider";

/// Refuses a run that computed heavy operators on the CPU, by the profile that ONNX Runtime wrote to `path`.
pub(crate) fn check(path: &Path) -> Result<(), String> {
    let text = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let events: Vec<Value> = serde_json::from_slice(&text).map_err(|error| format!("its profile: {error}"))?;
    let mut nodes = 0;
    let mut left = BTreeSet::new();
    for (operator, provider) in events.iter().filter_map(placed) {
        nodes += 1;
        if provider == CPU && HEAVY.iter().any(|heavy| operator.contains(heavy)) {
            left.insert(operator);
        }
    }
    match (nodes, left.is_empty()) {
        (0, _) => Err("its profile names no nodes, so nobody knows where they ran".to_owned()),
        (_, true) => Ok(()),
        (_, false) => Err(format!("its {} would run on the CPU", Vec::from_iter(left).join(", "))),
    }
}

/// Returns a node event's operator and provider.
fn placed(event: &Value) -> Option<(&str, &str)> {
    let arguments = event.get("args")?;
    Some((arguments.get("op_name")?.as_str()?, arguments.get("provider")?.as_str()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(nodes: &[(&str, &str)]) -> Result<(), String> {
        let node = |(operator, provider): &(&str, &str)| serde_json::json!({"cat": "Node", "args": {"op_name": operator, "provider": provider}});
        let mut events = vec![serde_json::json!({"cat": "Session", "name": "model_run", "args": {}})];
        events.extend(nodes.iter().map(node));
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), serde_json::to_vec(&events).unwrap()).unwrap();
        check(file.path())
    }

    #[test]
    fn shapes_may_be_computed_on_the_cpu_and_products_may_not() {
        let gpu = "CUDAExecutionProvider";
        checked(&[("FusedMatMul", gpu), ("Gather", CPU), ("Shape", CPU)]).unwrap();
        checked(&[("TRTKernel_graph_1", "TensorrtExecutionProvider")]).unwrap();
        let refused = checked(&[("MatMul", gpu), ("SkipLayerNormalization", CPU), ("MatMul", CPU), ("Shape", CPU)]);
        assert_eq!(refused.unwrap_err(), "its MatMul, SkipLayerNormalization would run on the CPU");
        assert!(checked(&[]).unwrap_err().contains("no nodes"));
    }

    #[test]
    fn what_is_no_profile_is_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(check(file.path()).unwrap_err().starts_with("its profile: "));
        assert!(check(Path::new("/no/such/profile.json")).is_err());
    }
}
