//! Rows that are checked while their file is read, so that an error names the line.

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt::{self, Formatter};
use std::marker::PhantomData;

/// A row of a tuning table.
pub(super) trait CheckedRow: DeserializeOwned {
    /// What it is, for errors.
    const WHAT: &str;

    /// Returns the first fault, as text.
    fn check(&self) -> Result<(), String>;
}

/// Reads the rows of a file and checks each; an error names its line.
pub(super) fn checked<'de, D: Deserializer<'de>, Row: CheckedRow>(
    deserializer: D,
) -> Result<Vec<Row>, D::Error> {
    let rows = Vec::<Checked<Row>>::deserialize(deserializer)?;
    Ok(rows.into_iter().map(|row| row.0).collect())
}

struct Checked<Row>(Row);

struct Checker<Row>(PhantomData<Row>);

impl<'de, Row: CheckedRow> Visitor<'de> for Checker<Row> {
    type Value = Checked<Row>;

    fn expecting(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(Row::WHAT)
    }

    // The JSON reader adds the line number to an error that is raised while it is at the row.
    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<Self::Value, M::Error> {
        let row = Row::deserialize(MapAccessDeserializer::new(map))?;
        row.check().map_err(M::Error::custom)?;
        Ok(Checked(row))
    }
}

impl<'de, Row: CheckedRow> Deserialize<'de> for Checked<Row> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Checker(PhantomData))
    }
}
