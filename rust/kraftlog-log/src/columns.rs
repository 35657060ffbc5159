//! (columns)
