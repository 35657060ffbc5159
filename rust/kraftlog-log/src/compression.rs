//! (compression)
