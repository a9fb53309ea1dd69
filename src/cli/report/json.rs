//! The report as one JSON object.

use super::RunReport;

/// Returns the report as one JSON object over several lines, without a last line break.
pub(crate) fn json(report: &RunReport) -> String {
    // Numbers, strings and lists of them: there is nothing in a report that serde_json refuses.
    serde_json::to_string_pretty(report).expect("a report is plain data")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::super::data::tests::example;
    use super::*;

    fn names(value: &Value) -> BTreeSet<&str> {
        value.as_object().unwrap().keys().map(String::as_str).collect()
    }

    /// Checks that the schema lists exactly the fields of `value`, and theirs.
    fn agree(schema: &Value, value: &Value) {
        match value {
            Value::Object(fields) => {
                assert_eq!(names(&schema["properties"]), names(value));
                assert_eq!(schema["additionalProperties"], Value::Bool(false));
                fields.iter().for_each(|(name, field)| agree(&schema["properties"][name], field));
            }
            Value::Array(items) => items.iter().for_each(|item| agree(&schema["items"], item)),
            Value::String(_) => assert_eq!(schema["type"], "string"),
            Value::Number(number) if number.is_f64() => assert_eq!(schema["type"], "number"),
            Value::Number(_) => assert!(schema["type"] == "integer" || schema.get("const").is_some()),
            other => panic!("{other} has no place in a report"),
        }
    }

    #[test]
    fn the_schema_describes_every_field() {
        let schema: Value = serde_json::from_str(include_str!("schema.json")).unwrap();
        let report: Value = serde_json::from_str(&json(&example())).unwrap();
        agree(&schema, &report);
        assert_eq!(schema["properties"]["schema"]["const"], report["schema"]);
    }

    #[test]
    fn what_was_not_asked_for_is_left_out() {
        let mut report = example();
        report.epochs[0].sha256 = None;
        report.epochs[0].batch_digests.clear();
        assert!(!json(&report).contains("sha256") && !json(&report).contains("batch_digests"));
    }
}
