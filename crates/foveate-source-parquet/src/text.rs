//! Values of any type as text.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowTemporalType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type,
    Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, Time32MillisecondType,
    Time32SecondType, Time64MicrosecondType, Time64NanosecondType, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, StructArray};
use arrow_schema::{DataType, TimeUnit};
use foveate_source::FetchError;
use serde_json::{Map, Value};

/// The value in row `row` as text: a string as it is, a number in decimal, a date as ISO 8601, nested values as JSON;
/// `None` for a null.
pub(crate) fn text(array: &dyn Array, row: usize) -> Result<Option<String>, FetchError> {
    Ok(match json(array, row)? {
        Value::Null => None,
        Value::String(text) => Some(text),
        other => Some(other.to_string()),
    })
}

fn json(array: &dyn Array, row: usize) -> Result<Value, FetchError> {
    if array.is_null(row) {
        return Ok(Value::Null);
    }
    Ok(match array.data_type() {
        DataType::Null => Value::Null,
        DataType::Boolean => array.as_boolean().value(row).into(),
        DataType::Int8 => array.as_primitive::<Int8Type>().value(row).into(),
        DataType::Int16 => array.as_primitive::<Int16Type>().value(row).into(),
        DataType::Int32 => array.as_primitive::<Int32Type>().value(row).into(),
        DataType::Int64 => array.as_primitive::<Int64Type>().value(row).into(),
        DataType::UInt8 => array.as_primitive::<UInt8Type>().value(row).into(),
        DataType::UInt16 => array.as_primitive::<UInt16Type>().value(row).into(),
        DataType::UInt32 => array.as_primitive::<UInt32Type>().value(row).into(),
        DataType::UInt64 => array.as_primitive::<UInt64Type>().value(row).into(),
        DataType::Float16 => float(array.as_primitive::<Float16Type>().value(row)),
        DataType::Float32 => float(array.as_primitive::<Float32Type>().value(row)),
        DataType::Float64 => float(array.as_primitive::<Float64Type>().value(row)),
        DataType::Utf8 => array.as_string::<i32>().value(row).into(),
        DataType::LargeUtf8 => array.as_string::<i64>().value(row).into(),
        DataType::Utf8View => array.as_string_view().value(row).into(),
        DataType::Binary => binary(array.as_binary::<i32>().value(row)),
        DataType::LargeBinary => binary(array.as_binary::<i64>().value(row)),
        DataType::BinaryView => binary(array.as_binary_view().value(row)),
        DataType::FixedSizeBinary(_) => binary(array.as_fixed_size_binary().value(row)),
        DataType::Decimal32(..) => array.as_primitive::<Decimal32Type>().value_as_string(row).into(),
        DataType::Decimal64(..) => array.as_primitive::<Decimal64Type>().value_as_string(row).into(),
        DataType::Decimal128(..) => array.as_primitive::<Decimal128Type>().value_as_string(row).into(),
        DataType::Decimal256(..) => array.as_primitive::<Decimal256Type>().value_as_string(row).into(),
        DataType::Date32 | DataType::Date64 | DataType::Time32(_) | DataType::Time64(_) | DataType::Timestamp(..) => {
            time(array, row).map_or(Value::Null, Value::String)
        }
        DataType::Struct(_) => object(array.as_struct(), row)?,
        DataType::List(_) => list(&array.as_list::<i32>().value(row))?,
        DataType::LargeList(_) => list(&array.as_list::<i64>().value(row))?,
        DataType::FixedSizeList(..) => list(&array.as_fixed_size_list().value(row))?,
        DataType::Map(..) => list(&array.as_map().value(row))?,
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            let key = json(dictionary.keys(), row)?.as_u64().unwrap_or_default();
            json(dictionary.values(), key as usize)?
        }
        other => return Err(FetchError::Refused(format!("values of type {other} cannot be text"))),
    })
}

/// A number in as few digits as tell it from its neighbours.
fn float(value: impl std::fmt::Display) -> Value {
    let digits = value.to_string();
    match digits.parse().ok().and_then(serde_json::Number::from_f64) {
        Some(number) => Value::Number(number),
        None => Value::String(digits),
    }
}

/// Text if it is valid, otherwise hexadecimal digits.
fn binary(value: &[u8]) -> Value {
    match std::str::from_utf8(value) {
        Ok(text) => text.into(),
        Err(_) => value.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into(),
    }
}

fn list(values: &dyn Array) -> Result<Value, FetchError> {
    (0..values.len()).map(|row| json(values, row)).collect::<Result<Vec<_>, _>>().map(Value::Array)
}

fn object(fields: &StructArray, row: usize) -> Result<Value, FetchError> {
    let values = fields.fields().iter().zip(fields.columns());
    let values = values.map(|(field, column)| Ok((field.name().clone(), json(column, row)?)));
    values.collect::<Result<Map<_, _>, FetchError>>().map(Value::Object)
}

/// ISO 8601; times with a zone are in UTC. `None` for a year that calendars do not reach.
fn time(array: &dyn Array, row: usize) -> Option<String> {
    let written = match array.data_type() {
        DataType::Date32 => array.as_primitive::<Date32Type>().value_as_date(row).map(|date| date.to_string()),
        DataType::Date64 => array.as_primitive::<Date64Type>().value_as_date(row).map(|date| date.to_string()),
        DataType::Time32(TimeUnit::Second) => clock::<Time32SecondType>(array, row),
        DataType::Time32(_) => clock::<Time32MillisecondType>(array, row),
        DataType::Time64(TimeUnit::Nanosecond) => clock::<Time64NanosecondType>(array, row),
        DataType::Time64(_) => clock::<Time64MicrosecondType>(array, row),
        DataType::Timestamp(TimeUnit::Second, _) => moment::<TimestampSecondType>(array, row),
        DataType::Timestamp(TimeUnit::Millisecond, _) => moment::<TimestampMillisecondType>(array, row),
        DataType::Timestamp(TimeUnit::Microsecond, _) => moment::<TimestampMicrosecondType>(array, row),
        _ => moment::<TimestampNanosecondType>(array, row),
    };
    let zone = if matches!(array.data_type(), DataType::Timestamp(_, Some(_))) { "Z" } else { "" };
    written.map(|time| time + zone)
}

fn clock<T: ArrowTemporalType>(array: &dyn Array, row: usize) -> Option<String>
where
    i64: From<T::Native>,
{
    array.as_primitive::<T>().value_as_time(row).map(|time| time.to_string())
}

fn moment<T: ArrowTemporalType>(array: &dyn Array, row: usize) -> Option<String>
where
    i64: From<T::Native>,
{
    array.as_primitive::<T>().value_as_datetime(row).map(|time| format!("{time:?}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::builder::{Int32Builder, ListBuilder};
    use arrow_array::*;
    use arrow_schema::Field;

    use super::*;

    fn shown(array: &dyn Array) -> Vec<Option<String>> {
        (0..array.len()).map(|row| text(array, row).unwrap()).collect()
    }

    fn some(texts: &[&str]) -> Vec<Option<String>> {
        texts.iter().map(|&text| Some(text.to_owned())).collect()
    }

    #[test]
    fn scalars_are_text() {
        assert_eq!(shown(&Int64Array::from(vec![Some(-7), None])), [Some("-7".to_owned()), None]);
        assert_eq!(shown(&UInt64Array::from(vec![u64::MAX])), some(&["18446744073709551615"]));
        assert_eq!(shown(&Float32Array::from(vec![0.1, f32::NAN, -0.5])), some(&["0.1", "NaN", "-0.5"]));
        assert_eq!(shown(&Float64Array::from(vec![1e300])), some(&["1e+300"]));
        assert_eq!(shown(&BooleanArray::from(vec![true])), some(&["true"]));
        assert_eq!(shown(&StringViewArray::from(vec!["a \"cat\"", ""])), some(&["a \"cat\"", ""]));
        assert_eq!(shown(&BinaryArray::from(vec![&b"text"[..], b"\xff\x00"])), some(&["text", "ff00"]));
        let cents = Decimal128Array::from(vec![-12345]).with_precision_and_scale(10, 2).unwrap();
        assert_eq!(shown(&cents), some(&["-123.45"]));
        let kinds: DictionaryArray<types::Int8Type> = vec![Some("a"), None, Some("b"), Some("a")].into_iter().collect();
        assert_eq!(shown(&kinds), [Some("a".to_owned()), None, Some("b".to_owned()), Some("a".to_owned())]);
    }

    #[test]
    fn times_are_iso_8601() {
        assert_eq!(shown(&Date32Array::from(vec![19_000, i32::MAX])), [Some("2022-01-08".to_owned()), None]);
        assert_eq!(shown(&Time64MicrosecondArray::from(vec![3_600_000_001])), some(&["01:00:00.000001"]));
        let utc = TimestampMillisecondArray::from(vec![1_641_600_000_123]);
        assert_eq!(shown(&utc), some(&["2022-01-08T00:00:00.123"]));
        assert_eq!(shown(&utc.with_timezone("Europe/Berlin")), some(&["2022-01-08T00:00:00.123Z"]));
    }

    #[test]
    fn nested_values_are_json() {
        let mut boxes = ListBuilder::new(Int32Builder::new());
        boxes.append_value([Some(1), None]);
        boxes.append_null();
        let boxes: ArrayRef = Arc::new(boxes.finish());
        assert_eq!(shown(&boxes), [Some("[1,null]".to_owned()), None]);
        let labels: ArrayRef = Arc::new(StringArray::from(vec!["cat", "\"dog\""]));
        let field = |name: &str, array: &ArrayRef| Arc::new(Field::new(name, array.data_type().clone(), true));
        let both = StructArray::from(vec![(field("boxes", &boxes), boxes.clone()), (field("label", &labels), labels)]);
        assert_eq!(shown(&both), some(&[r#"{"boxes":[1,null],"label":"cat"}"#, r#"{"boxes":null,"label":"\"dog\""}"#]));
    }
}
