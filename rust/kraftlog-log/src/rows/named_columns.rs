//! The columns of any table under the names that a producer knows.
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Int32Array, StructArray};
use arrow_schema::{Field, FieldRef};

use crate::builder::Column;
use crate::partitioner::key_partitions;
use crate::{Error, Result};

/// Names that a table has for columns of a producer.
#[derive(Clone, Copy, Debug, Default)]
pub struct ColumnNames<'a> {
    /// Of the keys, instead of `key`.
    pub key: Option<&'a str>,
    /// Of the values, instead of `value`.
    pub value: Option<&'a str>,
    /// Of bytes or text whose hash decides the partition of a row, instead of that of its key.
    pub partition_by: Option<&'a str>,
}

/// Gives the columns that `names` has the names `key`, `value` and `partition`; the others stay as they are.
///
/// One column may be named twice, as key and for the partition, for example.
///
/// # Errors
/// [`Error::Invalid`] when a column is missing, is there under its own name as well, or has another type.
pub fn named_columns(
    rows: &StructArray,
    names: &ColumnNames<'_>,
    partition_count: i32,
) -> Result<StructArray> {
    let named = [("key", names.key), ("value", names.value), ("partition", names.partition_by)];
    let named: Vec<_> = named.into_iter().filter_map(|(role, name)| Some((role, name?))).collect();
    if named.is_empty() {
        return Ok(rows.clone());
    }
    let mut columns: Vec<(FieldRef, ArrayRef)> = Vec::with_capacity(rows.num_columns() + 1);
    for (field, array) in rows.fields().iter().zip(rows.columns()) {
        let own = field.name().as_str();
        if named.iter().any(|(_, name)| *name == own) {
            continue;
        }
        if let Some((role, name)) = named.iter().find(|(role, _)| *role == own) {
            return Err(Error::Invalid(format!("column {role}: column {name} is to be the {role}")));
        }
        columns.push((Arc::clone(field), Arc::clone(array)));
    }
    for (role, name) in named {
        let invalid = |reason: &dyn std::fmt::Display| Error::Invalid(format!("column {name}: {reason}"));
        let array = rows.column_by_name(name).ok_or_else(|| invalid(&"there is none"))?;
        let array: ArrayRef = if role == "partition" {
            let by = Column::new(array).map_err(|error| invalid(&error))?;
            Arc::new(Int32Array::from(key_partitions(&by, &Column::Null, partition_count)?))
        } else {
            Arc::clone(array)
        };
        columns.push((Arc::new(Field::new(role, array.data_type().clone(), true)), array));
    }
    let (fields, arrays): (Vec<FieldRef>, Vec<ArrayRef>) = columns.into_iter().unzip();
    StructArray::try_new(fields.into(), arrays, rows.nulls().cloned())
        .map_err(|error| Error::Invalid(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{BinaryArray, StringArray};
    use arrow_schema::DataType;

    fn table() -> StructArray {
        let text = |values: [&str; 3]| Arc::new(StringArray::from(values.to_vec())) as ArrayRef;
        let bytes = Arc::new(BinaryArray::from(vec![&b"1"[..], b"2", b"3"])) as ArrayRef;
        StructArray::from(vec![
            (Arc::new(Field::new("id", DataType::Utf8, true)), text(["21", "foobar", "abc"])),
            (Arc::new(Field::new("payload", DataType::Binary, true)), bytes),
            (Arc::new(Field::new("region", DataType::Utf8, true)), text(["abc", "abc", "21"])),
        ])
    }

    fn names_of(rows: &StructArray) -> Vec<&str> {
        rows.column_names()
    }

    #[test]
    fn columns_get_the_names_of_a_producer() {
        let rows = table();
        let names = ColumnNames { key: Some("id"), value: Some("payload"), partition_by: Some("region") };
        let found = named_columns(&rows, &names, 7).unwrap();
        assert_eq!(names_of(&found), ["key", "value", "partition"]);
        // The hash of "abc" is 479470107, that of "21" -973932308 (UtilsTest.testMurmur2).
        let expected = [479_470_107, 479_470_107, -973_932_308 & 0x7fff_ffff].map(|hash: i32| hash % 7);
        let partitions = found.column_by_name("partition").unwrap();
        assert_eq!(partitions.as_any().downcast_ref::<Int32Array>().unwrap().values(), &expected);
        let names = ColumnNames { value: Some("payload"), ..ColumnNames::default() };
        assert_eq!(names_of(&named_columns(&rows, &names, 7).unwrap()), ["id", "region", "value"]);
        let names = ColumnNames { key: Some("id"), partition_by: Some("id"), value: Some("id") };
        let found = named_columns(&rows, &names, 7).unwrap();
        assert_eq!(names_of(&found), ["payload", "region", "key", "value", "partition"]);
    }

    #[test]
    fn columns_that_are_missing_or_there_twice_are_named() {
        let rows = table();
        let refused = |names| named_columns(&rows, &names, 7).unwrap_err().to_string();
        let missing = ColumnNames { key: Some("nothing"), ..ColumnNames::default() };
        assert!(refused(missing).contains("column nothing: there is none"));
        let renamed =
            named_columns(&rows, &ColumnNames { key: Some("id"), ..ColumnNames::default() }, 7).unwrap();
        let twice = ColumnNames { key: Some("region"), ..ColumnNames::default() };
        let error = named_columns(&renamed, &twice, 7).unwrap_err().to_string();
        assert!(error.contains("column key: column region is to be the key"), "{error}");
        let numbers = StructArray::from(vec![(
            Arc::new(Field::new("n", DataType::Int32, true)),
            Arc::new(Int32Array::from(vec![1])) as ArrayRef,
        )]);
        let names = ColumnNames { partition_by: Some("n"), ..ColumnNames::default() };
        assert!(named_columns(&numbers, &names, 7).unwrap_err().to_string().contains("column n: "));
    }
}
